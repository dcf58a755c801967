"""Training scripts as they are: modules compiled, optimizers fused, and what became of them."""
