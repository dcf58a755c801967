"""From a workload to a Halide pipeline and its schedule: what all families share."""
