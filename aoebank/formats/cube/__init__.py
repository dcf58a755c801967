"""Format C, the cube ("GA") bank: JSON lines of shape and tiling, with a binary twin."""
