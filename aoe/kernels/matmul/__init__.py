"""Matrix products: rows times constant weights, and of two computed tensors."""
