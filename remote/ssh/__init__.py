"""Hosts reached over SSH: their identity, their connections, and the shells on them."""
