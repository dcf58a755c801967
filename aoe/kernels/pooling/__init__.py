"""Pooling: the largest element, or the mean, of a window around each result."""
