"""Check-up before a run: what may go wrong on this machine, and what helps."""
