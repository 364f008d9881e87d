"""The documents that producers write and read."""
