"""Summary at the end of a run: how many tests were skipped, why, and how to install missing programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.needs import lack_of, lacking, packages


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary if any test was skipped."""
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if reasons:
        terminalreporter.section("skipped")
        for line in block(reasons):
            terminalreporter.write_line(line)


def block(reasons: Counter[str]) -> Iterator[str]:
    """Yield the lines: each reason with its number of tests, then the command that installs all programs."""
    for reason, count in reasons.most_common():
        yield f"{count:6} {reason}"
    if not reasons.keys().isdisjoint(map(lack_of, packages())):
        yield "To install all programs that this machine lacks, as root:"
        yield f"    apt-get install --no-install-recommends {' '.join(lacking(packages()))}"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason given to `pytest.skip` or a mark."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return " ".join(words.removeprefix("Skipped: ").split())
