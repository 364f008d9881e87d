"""The documents: what is generated in them, what they say, and whether it is so."""
