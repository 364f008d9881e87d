"""The producer's side."""
