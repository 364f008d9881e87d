"""Checks of an installation and its hosts."""
