"""Configured agents: prices, versions, health."""
