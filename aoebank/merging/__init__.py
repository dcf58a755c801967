"""Merge banks record by record: decide, decisions as data, apply."""
