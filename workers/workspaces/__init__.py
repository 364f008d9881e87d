"""Workspaces that turns bring along."""
