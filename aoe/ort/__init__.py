"""ONNX Runtime as host: sessions, its own optimisation, its layouts, its profiler."""
