"""Reports for people and Prometheus."""
