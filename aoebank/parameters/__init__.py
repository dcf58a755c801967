"""Parameters of the public functions, and what a call takes from around it."""
