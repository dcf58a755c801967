"""What can be tuned: kinds of tasks, each with what it tries and how it is measured."""
