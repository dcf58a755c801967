"""Contract suites for kernel families, rewrite rules and searches, with what they stand on."""
