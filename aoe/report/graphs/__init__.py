"""The graph of a model before and after tuning, side by side on one page."""
