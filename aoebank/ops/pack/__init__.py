"""Ship a bank: put it into a pack, take it out again and check every byte of it."""
