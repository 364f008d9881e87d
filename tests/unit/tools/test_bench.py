"""The benchmarks: what they refuse before they start."""

from __future__ import annotations

import pytest

from tests.tools.bench.__main__ import main


def test_unknown_name_is_refused_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fold_rate", "nosuch"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bench: no such benchmark: nosuch; choose from: fold_rate, first_event_latency, ")
