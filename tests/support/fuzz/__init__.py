"""Mutated bank files through all that reads, merges and mends them: `python -m support.fuzz`."""
