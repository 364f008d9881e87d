"""The boards of `tests.tools.dashboards`: checked on paper, on a real Prometheus, and drawn."""
