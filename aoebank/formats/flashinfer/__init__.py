"""Tactics that FlashInfer ships per GPU."""
