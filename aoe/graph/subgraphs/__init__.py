"""Subgraphs of the imported model: where it is cut, each as a model of its own, and back again."""
