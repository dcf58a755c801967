"""The TensorFlow entry (`--framework=3`): tf2onnx converts, in a process of its own."""
