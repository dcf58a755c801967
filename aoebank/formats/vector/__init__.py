"""Format D, the vector ("RL") bank: one JSON object whose values are JSON as strings."""
