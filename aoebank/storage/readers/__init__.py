"""How each program finds its bank: places, rules, and a walk that tells what it saw."""
