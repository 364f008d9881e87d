"""Grafana dashboards as code. `make dashboards` writes them to `ops/grafana/dashboards`, where Grafana reads them.

The package that builds them (grafana-foundation-sdk) is a development dependency: no program imports this one.
"""
