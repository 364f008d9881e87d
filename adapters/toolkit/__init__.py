"""Helpers shared by adapters: reading lines and fields, options, error mapping."""
