"""Versions of a bank for people and for programs."""
