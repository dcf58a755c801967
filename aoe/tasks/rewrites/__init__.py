"""Rewrites of subgraphs as tasks: equal ways to write one, measured against the original."""
