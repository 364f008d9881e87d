"""Brokers: settings, transport, health."""
