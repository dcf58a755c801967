"""Whether a run would go well here, and what to do if not."""
