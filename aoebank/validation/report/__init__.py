"""Findings and fixes for people, for programs and for CI servers."""
