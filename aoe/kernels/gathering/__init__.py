"""Kernels that read where another tensor says."""
