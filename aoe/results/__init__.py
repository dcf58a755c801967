"""Files a run leaves behind, and reading them again."""
