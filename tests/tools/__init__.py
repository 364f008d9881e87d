"""Programs behind make targets."""
