"""Operators written in others of the same meaning, of which ONNX Runtime makes more."""
