"""Blows that forge what the shells of a running turn write, as its own tools could.

A forged end changes nothing: its turn goes on, and is booked exactly. A forged reason to terminate the agent, and
forged signatures, may cost the attempt, but neither the turn nor its bill.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.blows.running import Running, strike_one
from tests.tools.chaos.stage import Stage
from tests.tools.chaos.workload import Kind

# Attempts of these may be lost: the others share a bill, or must not lose two attempts to the same limit.
MAY_LOSE_ATTEMPTS = frozenset(
    {Kind.PLAIN, Kind.FAILING, Kind.RETRIED, Kind.BROKEN, Kind.CANCELLED, Kind.REAL, Kind.FLOODING}
)
# These print a line with one write: a line of ours cannot get into the middle of one of theirs.
_WRITE_LINES = frozenset({*MAY_LOSE_ATTEMPTS, Kind.STUCK, Kind.BROUGHT, Kind.LIVE})

_MARKERS = (
    '{{"runturn":"{seal}","exit":"0","reason":"exit","cpu_ms":"-","memory_kib":"-","free_percent":"-"}}',
    '{{"runturn":"{seal}","exit":"x","reason":5}}',
    '{{"runturn":"{seal}","exit":"-","reason":"lost","cpu_ms":"1","memory_kib":"1","free_percent":"1"}}',
    '{{"runturn":{{"exit":0}},"exit":null}}',
)
_ENDS = (
    "0 exit marked",
    "0 exit marked 1 1 -",
    "0 exit marked 1 1 {seal}",
    "- lost unmarked {seal}",
    "junk " * 40,
    "{{}}",
)
_REASONS = ("cancel", "lease", "lost", "exit", 'no"', "a b c")
# Their numbers are beyond those of all processes.
_SIGNATURES = (("heartbeat", "junk"), ("supervisor", "4194305 1"), ("watcher", "4194305 1"), ("agent", "junk"))


@dataclass(frozen=True, slots=True)
class _Forgery:
    name: str
    forge: Callable[[Path, random.Random], str]  # returns what was written
    kinds: frozenset[Kind]
    ends_agents: bool = False
    everywhere: bool = True  # False: only where the worker is seldom out of reach, which then puts it right


def on_spools(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows that forge the files of turns."""
    return [_blow(stage, _FORGERIES[n % len(_FORGERIES)], rng) for n in range(stage.form.forged_blows)]


def _blow(stage: Stage, forgery: _Forgery, rng: random.Random) -> Blow:
    choice = random.Random(rng.random())
    places = stage.spools if forgery.everywhere else [stage.hosts[0].spools, stage.spools[-1]]
    written: list[str] = []

    def wanted(each: Running) -> bool:
        return each.kind in forgery.kinds and each.spool.parent in places and not each.has_sandbox

    def forge(each: Running) -> None:
        if forgery.ends_agents and each.kind is Kind.REAL:
            stage.struck.may_be_short.add(each.turn_id)  # an answer may be in flight
        written.append(forgery.forge(each.spool, choice))

    def strike() -> None:
        struck = strike_one(stage, choice, wanted, forge)
        stage.story.tell(f"{struck.spool}: {written[-1]}")

    return Blow(forgery.name, strike)


def _marker(spool: Path, rng: random.Random) -> str:
    text = rng.choice(_MARKERS).format(seal=_seal(rng))
    return _write(spool / "events", f"\n{text}\n", os.O_APPEND)


def _end(spool: Path, rng: random.Random) -> str:
    return _write(spool / "end", rng.choice(_ENDS).format(seal=_seal(rng)) + "\n", os.O_TRUNC)


def _reason(spool: Path, rng: random.Random) -> str:
    return _write(spool / "reason", f"{rng.choice(_REASONS)}\n", os.O_TRUNC)


def _signature(spool: Path, rng: random.Random) -> str:
    name, words = rng.choice(_SIGNATURES)
    return _write(spool / name, f"{words}\n", os.O_TRUNC)


def _seal(rng: random.Random) -> str:
    return rng.choice(("", "0" * 32, f"{rng.getrandbits(128):032x}"))


def _write(file: Path, text: str, how: int) -> str:
    """Write with one system call to a file that exists."""
    descriptor = os.open(file, os.O_WRONLY | how)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    return f"{text!r:.80} is written to {file.name}"


_FORGERIES = (
    _Forgery("an end marker is forged", _marker, _WRITE_LINES),
    _Forgery("an end is forged", _end, frozenset(Kind)),
    _Forgery("a reason to end is forged", _reason, MAY_LOSE_ATTEMPTS, ends_agents=True),
    _Forgery("a signature is forged", _signature, MAY_LOSE_ATTEMPTS, ends_agents=True, everywhere=False),
)
