"""Attention: scores, their softmax over the keys, and the values summed up by it."""
