"""What is compared or merged: a path, a git revision, a snapshot, all read the same way."""
