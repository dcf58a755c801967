"""Gradient timelines as text, SVG and one HTML page."""
