"""Gradient tuning of a model file: what trains it, and the processes it is trained in."""
