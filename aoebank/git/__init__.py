"""Merge and diff drivers for git, their registration, and the check of merges."""
