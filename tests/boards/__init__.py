"""The boards of `ops.grafana`: checked on paper, on a real Prometheus, and drawn."""
