"""Running turns, found by their spools on the hosts: what a tool of a turn could strike."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ops.errors import LedgerUnavailable, UnknownTurn
from tests.support.waiting import text_of, until, words_of
from tests.tools.chaos.blows.blow import Missed
from tests.tools.chaos.stage import Stage
from tests.tools.chaos.workload import Kind, settled

_PATIENCE_S = 60.0  # a storm may keep all turns from running for a while
_STARTED_AT = 19  # word of /proc/PID/stat, after the name


@dataclass(frozen=True, slots=True)
class Running:
    """A turn whose agent is running."""

    spool: Path
    kind: Kind | None  # None: a turn of a session

    @property
    def turn_id(self) -> str:
        """Its turn's id."""
        return self.spool.name.rpartition(".")[0]

    def pid(self, name: str) -> int:
        """Return the pid of its supervisor, watcher or agent; 0 if that has not signed or has exited."""
        signature = words_of(self.spool / name)
        if len(signature) < 2:
            return 0
        stat = text_of(Path(f"/proc/{signature[0]}/stat")).rpartition(")")[2].split()
        if stat[_STARTED_AT : _STARTED_AT + 1] != signature[1:2]:
            return 0
        pid = int(signature[0])
        return _first_child(_first_child(pid)) if "contained" in signature else pid

    @property
    def has_sandbox(self) -> bool:
        """Return True if its agent can write to no file of its spool."""
        return (self.spool / "out").exists()


def strike_one(
    stage: Stage, rng: random.Random, wanted: Callable[[Running], bool], deed: Callable[[Running], object]
) -> Running:
    """Wait for one of the wanted turns that was not struck before, and do a deed to it; return it.

    Raise Missed if there is none. A deed raises OSError if the turn ended meanwhile.
    """

    def struck() -> Running | None:
        found = [each for each in _running(stage) if wanted(each)]
        rng.shuffle(found)
        for each in found:
            if stage.struck.claim(each.turn_id) and _done(deed, each):
                return each
        if not found and _is_over(stage):
            raise Missed
        return None

    try:
        one = until(struck, "a turn to strike", _PATIENCE_S)
    except AssertionError as error:
        raise Missed from error
    assert one is not None
    return one


def _first_child(pid: int) -> int:
    """Return 0 if there is none; that of nobody is nobody."""
    children = text_of(Path(f"/proc/{pid}/task/{pid}/children")).split()
    return int(children[0]) if children else 0


def _is_over(stage: Stage) -> bool:
    try:
        return all(settled(stage.ledger, turn) for turn in stage.workload.turns)
    except (LedgerUnavailable, UnknownTurn):
        return False


def _running(stage: Stage) -> list[Running]:
    kinds = {turn.id: turn.kind for turn in stage.workload.turns}
    spools = sorted(spool for place in stage.spools if place.exists() for spool in place.glob("[!.]*"))
    found = [Running(spool, kinds.get(spool.name.rpartition(".")[0])) for spool in spools]
    return [each for each in found if each.pid("agent") and not words_of(each.spool / "end")]


def _done(deed: Callable[[Running], object], running: Running) -> bool:
    try:
        deed(running)
    except OSError:
        return False
    return True
