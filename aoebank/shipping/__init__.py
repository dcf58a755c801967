"""Ship a bank: put it into a pack or another form, take it out again, check every byte."""
