"""Git as banks meet it: revisions, settings, attributes, merges."""
