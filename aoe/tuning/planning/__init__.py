"""What runs would do, without doing it."""
