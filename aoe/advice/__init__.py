"""What would make a model faster, and whether it does: an action is tried before it is claimed."""
