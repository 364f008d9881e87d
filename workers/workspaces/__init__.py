"""Workspaces that turns bring."""
