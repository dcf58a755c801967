"""Caches of Kernel Tuner: what it measured of each configuration of a kernel."""
