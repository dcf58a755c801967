"""Studies of Optuna, which are read and never written."""
