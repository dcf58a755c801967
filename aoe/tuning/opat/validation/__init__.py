"""Kernels in the whole model: which stay, and with which accuracy."""
