"""Resizing by interpolation, linear or cubic; of images of any size to the nearest, too."""
