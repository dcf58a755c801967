"""Values of the bank layer: facts without behaviour, files or rendering."""
