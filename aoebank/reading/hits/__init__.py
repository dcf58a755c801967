"""Which records runs have really used, by their logs and results."""
