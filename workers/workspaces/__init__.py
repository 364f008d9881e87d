"""Per-turn workspaces."""
