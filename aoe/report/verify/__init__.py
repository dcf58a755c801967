"""Records measured again, as text and as a document."""
