"""File layouts: the only part that knows how a bank looks on disk."""
