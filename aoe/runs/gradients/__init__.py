"""Gradient tuning (GDAT): run, plan, verify, result."""
