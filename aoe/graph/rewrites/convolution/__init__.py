"""Rules about convolutions and what stands around them."""
