"""Rules about where data lies."""
