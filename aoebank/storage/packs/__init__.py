"""Packs: a bank in one file, with what it is for and a digest of everything in it."""
