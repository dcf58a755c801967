"""Subgraph tuning (SGAT): what is computed together, in which form, layout and pieces."""
