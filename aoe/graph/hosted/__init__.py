"""Products by ONNX Runtime's own operators of lower precision."""
