"""Generated code: one file per kernel family, algorithm and schedule space side by side."""
