"""Real processes of a group, and what they run."""
