"""The tuned model in one file, `.om`, and running it."""
