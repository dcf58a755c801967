"""Which neighbouring nodes become one kernel, subgraph by subgraph, in ONNX Runtime's own graph."""
