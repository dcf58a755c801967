"""Format A, the runtime bank of Ascend C operators: one record per line, keyed by a C struct."""
