"""Banks in forms other tools read, and back: lossless, or not at all."""
