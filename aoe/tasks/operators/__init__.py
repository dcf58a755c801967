"""Operators as tasks: schedules of a kernel, measured against ONNX Runtime's node."""
