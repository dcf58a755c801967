"""Banks on disk: where they are, and how they are read and written safely."""
