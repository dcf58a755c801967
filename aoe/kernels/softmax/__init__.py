"""Softmax and LogSoftmax: over rows, and over columns."""
