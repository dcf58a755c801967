"""Actions that may make a model faster, each tried before a gain is claimed."""
