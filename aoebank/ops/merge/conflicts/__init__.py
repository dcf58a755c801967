"""Conflict files while nobody settled them: what is in them, and whether they still hold."""
