"""Clients for producers."""
