"""What a run takes from an earlier one, for people and as documents."""
