"""Training graphs of PyTorch: regions, their kernels, and the choice between both."""
