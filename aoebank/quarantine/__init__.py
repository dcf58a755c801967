"""Known-bad records, kept out of a bank whoever brings them back."""
