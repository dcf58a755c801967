"""Random networks under random scopes: what generated kernels compute is what the model does."""
