"""Writing safely: locks, whole files or none, many files together."""
