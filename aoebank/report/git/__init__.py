"""What git was told, and what it shows of a bank."""
