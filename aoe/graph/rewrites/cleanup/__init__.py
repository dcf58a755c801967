"""Rules that take away what does nothing."""
