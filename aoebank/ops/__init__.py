"""The verbs of the bank layer: bank in, result value out."""
