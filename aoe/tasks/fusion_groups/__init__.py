"""Fusion groups as tasks: adjacent nodes of ONNX Runtime's optimised graph as one kernel."""
