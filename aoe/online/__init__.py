"""Online inference: a session that takes what the bank has, and tunes while it serves."""
