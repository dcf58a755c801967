"""Dense convolution in ONNX Runtime's blocked layout."""
