"""Reuse of an earlier run: its answers, and the report on what was taken from it."""
