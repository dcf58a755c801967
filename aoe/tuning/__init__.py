"""The tuning modes and the search they share."""
