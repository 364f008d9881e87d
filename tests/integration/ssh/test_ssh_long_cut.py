"""A link that is cut for a minute, which is how long it takes to find a silent connection dead."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.needs import need
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_stage import open_stage
from tests.support.waiting import until

CUT_S = 61.0


@pytest.mark.timeout(300)
def test_turns_survive_a_link_cut_of_a_minute(tmp_path: Path) -> None:
    need("sshd")
    need_links()
    with Link() as link, open_stage(tmp_path, link) as stage:
        stage.begin()
        sessions = set(stage.sshd.sessions())
        link.cut()
        cut_at = time.monotonic()
        stage.go_on_unseen()
        until(lambda: time.monotonic() - cut_at >= CUT_S, "a cut of a minute", CUT_S + 1)
        # One that its worker had left just before may have ended.
        still = set(stage.sshd.sessions())
        assert still and still <= sessions, "the server knows nothing of it"
        assert not any(stage.fleet.ledger.reports.result(turn.id) for turn in stage.turns)
        link.mend()
        stage.finish()
