"""Sides of a comparison or a merge: a path, a git revision, a snapshot, read the same way."""
