"""Grafana's dashboards as code. `make dashboards` writes them to `ops/grafana/dashboards`, for Grafana to read.

The package that builds them (grafana-foundation-sdk) is one for developers: nothing that runs imports this one.
"""
