"""Models, graphs, workloads and results that several tests of the engine are made of."""
