"""Operator tuning for a range of shapes: run, plan, judgement at the points of the range."""
