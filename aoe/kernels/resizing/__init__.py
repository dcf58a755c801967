"""Resizing by interpolation, linear or cubic."""
