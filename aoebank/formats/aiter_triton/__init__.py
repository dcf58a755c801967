"""Triton configurations that aiter keeps in git, a row per class of sizes."""
