"""What git asks of a bank: drivers, their registration, and merges checked again."""
