"""What the modes of a run leave together."""
