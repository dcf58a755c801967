"""Versions of a bank: record them, tell them, go back to them."""
