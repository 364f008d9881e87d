"""A success stands whatever becomes of its bill, which is read as soon as it can be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from adapters.codex.adapter import Codex
from adapters.command import Command
from adapters.contract import AgentConfig, Session
from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.registry import Registry
from adapters.usage import UsageSource
from remote.errors import HostError, HostUnreachable
from tests.support.fleets.site import Site
from tests.support.processes import until_at_rest
from tests.support.recordings.versions import Recording
from tests.support.waiting import lines_of
from workers.context import WorkerContext
from workers.maintenance.host_cleanup import tidy
from workers.turn import judgement
from workers.turn.run import RunTurn

RECORDING = Recording("codex", "0.150.1", "success")
# Adds its records to the rollout, and prints its output.
AGENT = """
echo started >>"$1"
folder=$HOME/.codex/sessions/2026/11/23
mkdir -p "$folder"
printf %s "$3" >>"$folder/rollout-today-$2.jsonl"
printf %s "$4"
"""


class Replayed(Codex):
    """A Codex whose only turn is a recorded one."""

    name = "replayed"

    def __init__(self, starts: Path) -> None:
        super().__init__(AgentConfig())
        self._starts = starts

    def build(self, request: TurnRequest, session: Session) -> Command:
        """See `Adapter.build`."""
        records, printed = (
            b"".join(line + b"\n" for line in lines).decode()
            for lines in (RECORDING.session_lines, RECORDING.lines)
        )
        thread = self._thread()
        argv = ("sh", "-c", AGENT, "agent", str(self._starts), thread, records, printed)
        return replace(super().build(request, session), argv=argv)

    def _thread(self) -> str:
        (event,) = self.parser().feed(RECORDING.lines[0], None)
        return str(event.session_id)  # type: ignore[attr-defined]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def worker(site: Site) -> WorkerContext:
    """One that knows the agent."""
    return replace(site.worker(), registry=Registry([Replayed(site.root / "starts")]))


@pytest.mark.parametrize("fault", [HostUnreachable("local", "no route"), HostError("local", "it took too long")])
def test_success_is_not_bought_again_for_want_of_its_bill(
    site: Site, monkeypatch: pytest.MonkeyPatch, fault: HostError
) -> None:
    async def away(*_: object) -> NoReturn:
        raise fault

    turn_id = site.queue(agent="replayed")
    with monkeypatch.context() as patched:
        patched.setattr(judgement, "read_session_files", away)
        result = asyncio.run(RunTurn(worker(site), site.claim(turn_id)).drive())
    assert isinstance(result, TurnResult)
    assert (result.status, result.attempts, result.usage_complete) == ("completed", 1, False)
    assert result.text == "done"

    until_at_rest(site.spool)
    asyncio.run(tidy(worker(site), worker(site).hosts.get("local")))

    booked = site.ledger.accounting.usage_of(turn_id)[1]
    assert {model: used.tokens for model, used in booked.by_model.items()} == RECORDING.bill
    assert (booked.source, booked.complete) == (UsageSource.SESSION_FILES, True)
    assert list(site.spool.iterdir()) == []
    assert len(lines_of(site.root / "starts")) == 1
