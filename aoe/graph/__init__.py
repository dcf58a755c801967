"""The model as a graph: ONNX Runtime's optimised form, its regions, and the rewritten model."""
