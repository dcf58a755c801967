"""Rules about attention and its projections."""
