"""Gradient tuning (GDAT)."""
