"""Read what is in banks: list, show, ask, count, and tell which records runs used."""
