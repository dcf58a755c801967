"""Results for people and for programs: text and JSON from the same value."""
