"""The CPU of this machine, with ONNX Runtime as host."""
