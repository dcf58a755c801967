"""Faults planted in the product, one at a time, to see whether tests catch them.

`PYTHONPATH=.:tests python -m support.faults` tries all of them, `table.toml` lists them.
"""
