"""Operator tuning (OPAT)."""
