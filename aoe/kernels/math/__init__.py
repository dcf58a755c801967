"""float32 functions that vectorise."""
