"""Rules that compute the same numbers by other operators."""
