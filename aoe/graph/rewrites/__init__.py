"""Rewrite rules: equal ways to write a piece of a graph, before ONNX Runtime optimises it."""
