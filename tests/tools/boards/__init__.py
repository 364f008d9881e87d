"""Checks of the boards of `tests.tools.dashboards`, on paper and on a real Prometheus, and their pictures."""
