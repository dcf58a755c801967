"""A profile for people: as text, as a trace, as one page."""
