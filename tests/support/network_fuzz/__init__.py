"""Random networks of today's blocks, tuned as a run does it: `python -m support.fuzz networks`."""
