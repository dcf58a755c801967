"""Advice as text and as a document."""
