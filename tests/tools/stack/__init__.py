"""Everything that `compose.yaml` starts, without containers, and what can be said of the containers from here."""
