"""Application layer: any model file becomes a checked ONNX model with static shapes."""
