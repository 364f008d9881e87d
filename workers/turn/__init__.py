"""One claimed turn, from claim to result."""
