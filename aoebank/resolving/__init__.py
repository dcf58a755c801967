"""Find which bank, file and record each reader would use."""
