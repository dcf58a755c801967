"""Format F, the gradient fusion bank: one JSON list, an item per model."""
