"""Hosts reached over SSH: who they are, their connections, and the shells on them."""
