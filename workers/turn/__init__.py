"""One claimed turn, from its claim to its result."""
