"""What holds up in the whole model: parts that win alone and lose in it."""
