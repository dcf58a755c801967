"""Repositories of AKG, the kernel compiler of MindSpore."""
