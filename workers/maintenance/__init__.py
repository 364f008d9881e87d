"""Periodic upkeep of hosts and ledger."""
