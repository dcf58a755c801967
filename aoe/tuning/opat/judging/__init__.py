"""What holds up in the whole model: accuracy, and kernels that win alone and lose in it."""
