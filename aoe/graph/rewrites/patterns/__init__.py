"""Rules that recognise what exporters spell out."""
