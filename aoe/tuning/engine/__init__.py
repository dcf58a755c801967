"""What a run works with, and tests replace."""
