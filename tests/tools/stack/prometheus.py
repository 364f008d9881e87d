"""Prometheus as in compose.yaml, its targets on this machine; and what it says."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.places import ROOT

SOURCE = ROOT / "ops" / "prometheus"


def configuration(targets: Mapping[str, Sequence[str]], password_file: Path, interval_s: int) -> str:
    """That of compose.yaml, with these targets by job, and fresh data more often."""
    document = yaml.safe_load((SOURCE / "prometheus.yml").read_text())
    document["global"] = {"scrape_interval": f"{interval_s}s", "evaluation_interval": f"{interval_s}s"}
    document["rule_files"] = [str(SOURCE / name) for name in document["rule_files"]]
    for job in document["scrape_configs"]:
        job["static_configs"] = [{"targets": list(targets[job["job_name"]])}]
        if "basic_auth" in job:
            job["basic_auth"]["password_file"] = str(password_file)
    return yaml.safe_dump(document, sort_keys=False)


class Prometheus:
    """What a running one says."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value."""
        data = self._get("query", query=expression)
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def targets(self) -> dict[str, list[str]]:
        """The health of all targets, by job."""
        found: dict[str, list[str]] = {}
        for target in self._get("targets")["activeTargets"]:
            found.setdefault(target["labels"]["job"], []).append(target["health"])
        return found

    def alerts(self) -> dict[str, str]:
        """The alerts that are pending or firing."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self._get("alerts")["alerts"]}

    def rules(self) -> list[str]:
        """The names of all rules."""
        return [rule["name"] for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **parameters: str) -> Any:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]
