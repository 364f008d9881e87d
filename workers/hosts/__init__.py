"""Hosts that turns run on."""
