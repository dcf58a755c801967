"""ONNX Runtime behind `aoe.InferenceSession`: sessions that are swapped, options they share."""
