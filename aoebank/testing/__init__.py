"""Contract suites for formats: inherit one and give it a format and an example."""
