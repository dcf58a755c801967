"""Pooling: the largest element, the mean, or a norm, of a window around each result."""
