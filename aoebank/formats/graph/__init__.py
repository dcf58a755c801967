"""Format E, the subgraph bank: a version line, then one subgraph per line."""
