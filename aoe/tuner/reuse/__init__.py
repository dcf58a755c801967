"""What a run takes from an earlier one, and what it says about that."""
