"""Take records out of banks that nobody is served by."""
