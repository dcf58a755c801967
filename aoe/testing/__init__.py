"""Contract suites and fakes for tests of the engine and of its extensions."""
