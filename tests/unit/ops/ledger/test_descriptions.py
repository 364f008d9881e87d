"""What people recognise turns by, on both databases."""

from __future__ import annotations

import pytest

from adapters.protocol.request import TurnRequest
from ops.ledger import Ledger
from tests.support.ledger.accounts import a_usage, completed


def submitted(ledger: Ledger, prompt: str, **fields: object) -> str:
    request = TurnRequest.parse({"prompt": prompt, "workspace": "/srv", **fields})
    ledger.queue.submit_many([request], 1.0)
    return request.turn_id


@pytest.mark.parametrize(
    "prompt",
    [
        "Fix it",
        'Say "prompt":"no" and \\',
        "tab\tline\nbell\a del\x7f",
        "Größe ✓ 🚀 \\u0041",
        '{"prompt":"x"}',
        "'; --",
    ],
)
def test_prompt_is_read_as_it_was_written(ledger: Ledger, prompt: str) -> None:
    turn_id = submitted(
        ledger, prompt, turn_id="t" * 120, labels={"prompt": '"prompt":"y"'}, options={"prompt": "z"}
    )
    assert ledger.reports.prompts([turn_id, "nobody"]) == {turn_id: prompt}


@pytest.mark.parametrize("character", ["x", "\x01", "\\", "🚀"])
def test_of_a_long_prompt_the_beginning_is_read(ledger: Ledger, character: str) -> None:
    prompt = character * 100_000
    (beginning,) = ledger.reports.prompts([submitted(ledger, prompt)]).values()
    assert prompt.startswith(beginning)
    assert 2_000 < len(beginning) < 20_000


def test_removed_request_has_no_prompt(ledger: Ledger) -> None:
    completed(ledger, "old", a_usage(), labels={"team": "web", "a": "b"})
    assert ledger.reports.prompts(["old"]) == {"old": "Fix the tests"}
    ledger.retention.forget(100.0, 0.0)
    assert ledger.reports.prompts(["old"]) == {}
    assert ledger.reports.labels(["old", "nobody"]) == {"old": {"a": "b", "team": "web"}}
