"""Fusion groups: adjacent nodes of ONNX Runtime's optimised graph that become one kernel."""
