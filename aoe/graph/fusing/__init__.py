"""Which operators AOE would fuse: its classes as data, and what they make of a graph."""
