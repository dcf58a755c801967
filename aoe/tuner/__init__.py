"""The tuner: the loop over tasks, the search of one task, and the context of a run."""
