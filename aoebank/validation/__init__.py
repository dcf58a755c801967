"""Check bank files and trees, explain what was found, mend what is safe to mend."""
