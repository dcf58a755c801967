"""Texts with places: JSON, lines, containers, and edits that spare all other bytes."""
