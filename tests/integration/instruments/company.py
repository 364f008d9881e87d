"""A fleet whose workers have the set-up of a company, as the documents have it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from adapters.protocol.request import TurnRequest
from tests.docs.pages import page
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS

PROMPT = "Ask for the launch codes."
SECRET = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
WORDS = "I have found them under the carpet"


class CompanyFleet(Fleet):
    """Its workers import the company's module."""

    def failing(self, turn_id: str) -> TurnRequest:
        """A turn whose agent says something and fails, twice."""
        begun = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()[:3]
        options = {"lines": [*begun, f"{WORDS}: {SECRET}"], "exit_code": 3}
        prompt = f"{PROMPT} Push with {SECRET}."
        return self.request(prompt, agent="scripted", options=options, max_attempts=2, turn_id=turn_id)


@contextmanager
def company_fleet(
    root: Path, test: str, replaced: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[CompanyFleet]:
    """A fleet with one worker and the lines of docs/operating.md that this test runs, some words replaced."""
    (text,) = (block.text for block in page("docs/operating.md").blocks if test in block.tested_by)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    company = root / "company"
    company.mkdir()
    (company / "company.py").write_text(text)
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "PYTHONPATH": str(company),
        "RUNTURN_INCLUDE": '["company"]',
        "GITHUB_TOKEN": SECRET,
        **(environment or {}),
    }
    with CompanyFleet(root, variables) as fleet:
        fleet.start_worker()
        yield fleet
