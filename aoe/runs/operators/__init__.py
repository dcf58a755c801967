"""Operator tuning (OPAT): run, plan, verify, result."""
