"""Change many records at once: set fields, take records out."""
