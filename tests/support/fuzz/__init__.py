"""Mutated bank files through all that reads, merges and mends them: `support.fuzz banks`."""
