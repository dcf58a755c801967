"""What commands that change banks tell."""
