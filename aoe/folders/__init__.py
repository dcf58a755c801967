"""Folders of our own: locks that say who uses them, and scratch folders that never stay."""
