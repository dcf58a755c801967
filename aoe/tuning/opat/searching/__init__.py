"""Looks one operator after the other up, and searches what no bank knows."""
