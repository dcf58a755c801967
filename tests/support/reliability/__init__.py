"""What may happen to a write: a kill, a call that fails, a full disk; and how it is judged."""
