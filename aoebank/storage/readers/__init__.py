"""Places and rules by which programs find their banks, and a walk that notes each step."""
