"""Tuning of a model for a range of shapes: kernels for any number of rows."""
