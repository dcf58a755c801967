"""Caffe models for tests: written without the reader, and computed without ONNX."""
