"""What is told of banks that leave or come in."""
