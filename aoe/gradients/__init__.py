"""Gradient tuning without a framework: traces, costs, segmentations and their timelines."""
