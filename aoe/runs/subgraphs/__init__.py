"""Subgraph tuning (SGAT): run, plan, verify, result; fusion groups with it."""
