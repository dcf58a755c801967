"""Profiles: the time of each operator, and its distance from the machine's best."""
