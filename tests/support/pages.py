"""Read the pages that a process serves to Prometheus and orchestrators."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]


def page(url: str, accept: str = "text/plain") -> str:
    """Return a page as text."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
        text: str = answer.read().decode()
        return text


def answers(url: str, headers: Mapping[str, str] | None = None) -> bool:
    """Return whether a server answers with that page yet."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # as urllib's errors are
        return False


def scrape(url: str) -> Samples:
    """Return the samples of a metrics page, by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page(url))
        for sample in family.samples
    }


def verdict(url: str) -> tuple[int, dict[str, str]]:
    """Return the status and the reasons of `/livez` or `/readyz`."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.loads(answer.read())["reasons"]
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["reasons"]
