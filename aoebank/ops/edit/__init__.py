"""Change a field of strategies in all records of an operator, over all files at once."""
