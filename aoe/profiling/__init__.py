"""Where the time of a model goes, and how far each operator is from what the machine could do."""
