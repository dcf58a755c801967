"""A difference as text, JSON, Markdown and HTML."""
