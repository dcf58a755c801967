"""Kinds of tasks: their search spaces, their look-up, and how candidates are measured."""
