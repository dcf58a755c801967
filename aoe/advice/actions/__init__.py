"""Edits of a model that may make it faster: one per file, one line each in the registry."""
