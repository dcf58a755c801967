"""Results of TunableOp, which tunes the matrix products of PyTorch on ROCm."""
