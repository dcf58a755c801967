"""A model that is tuned for several shapes: a run for each, one tuned model of all."""
