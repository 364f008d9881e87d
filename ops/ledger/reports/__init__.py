"""What people and Prometheus read."""
