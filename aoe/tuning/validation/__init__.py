"""Validation of the whole model: kernels that win alone and lose in the model are dropped."""
