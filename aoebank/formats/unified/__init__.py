"""Format B, the unified (static) operator bank: one JSON object, a key per workload."""
