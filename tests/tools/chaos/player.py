"""The program that plays the agent `scripted` on the hosts, and records its starts and bills.

A play is a folder. Its acts are recordings: attempt N plays act N, or else the last. An act's report, its `result`
line, is its bill: it is printed and recorded in one step, which INT, TERM and HUP cannot interrupt. No other line
reports usage: what an agent has cost that was ended before is known, nothing.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from adapters.usage import ModelUsage, Tokens
from ops.ledger.schema import TOKEN_KINDS
from tests.support.needs import need
from tests.support.places import RECORDINGS

# An agent and everything that it starts hold a lock: no other agent of their turn may run meanwhile.
_STARTED = """#!/bin/sh
started() {{
    echo "${{RUNTURN_SPOOL##*/}}" >>{folder}/starts
    turn=${{RUNTURN_SPOOL##*/}}
    [ "$turn" ] || return 0
    exec 9>{folder}/locks/"${{turn%.*}}"
    {flock} -n 9 || echo "$turn" >>{folder}/overlaps
}}
"""
_PLAYER = """
started
for play; do :; done
act=$play/${{RUNTURN_SPOOL##*.}}
[ -e "$act" ] || act=$play/last
[ ! -e "$play/makes" ] || echo made >made
[ ! -e "$act.floods" ] || {awk} 'NR == 1 {{ while (n++ < $1) print "x" }}' "$act.floods" || exit
{awk} "$1" "$2" "$3" "$4" "$5" "$act" || exit
[ ! -e "$act.stops" ] || kill -STOP $$
trap '' INT TERM HUP
[ -e "$act.report" ] || exit 1
cat "$act.report" && echo "${{RUNTURN_SPOOL##*/}} $act" >>{folder}/bills
[ ! -e "$act.fails" ]
"""
_COUNTED = """
[ "$1" = --version ] || started
exec {program} "$@"
"""
_COUNTS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")  # as TOKEN_KINDS

Bill = dict[str, ModelUsage]


@dataclass(frozen=True, slots=True)
class Act:
    """Behavior of one attempt."""

    recording: str
    length_s: float
    has_report: bool = True  # False: it breaks off, and bills nothing that anybody could know
    fails: bool = False
    floods: int = 0  # lines of one letter that it prints first
    stops: bool = False  # when the recording is over, until it is killed


class Players:
    """The players of a run. They share a folder, on all hosts."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._bills: dict[str, Bill] = {}  # by act
        (folder / "locks").mkdir(parents=True)
        self._words = {"folder": quote(str(folder)), "awk": quote(need("awk")), "flock": quote(need("flock"))}
        self.program = self._program("player", _PLAYER)

    def counted(self, program: Path) -> Path:
        """Return a wrapper of the program that records its starts."""
        return self._program(program.name, _COUNTED, program=quote(str(program)))

    def play(self, name: str, *acts: Act, makes: bool = False) -> dict[str, str]:
        """Write a play; return the options of a request for it. With `makes`, it leaves a file, `made`."""
        folder = self._folder / name
        folder.mkdir()
        if makes:
            (folder / "makes").touch()
        for number, act in enumerate(acts, 1):
            self._write(folder / ("last" if number == len(acts) else str(number)), act)
        return {"recording": str(folder)}

    @property
    def starts(self) -> Counter[str]:
        """Return how often an agent was started, by spool."""
        return Counter(words[0] for words in self._notes("starts"))

    @property
    def overlaps(self) -> list[str]:
        """Return the spools whose agents were started while another agent of their turn was running."""
        return [words[0] for words in self._notes("overlaps")]

    @property
    def billed(self) -> list[tuple[str, Bill]]:
        """Return spool and bill of each agent that finished."""
        return [(spool, self._bills[act]) for spool, act in self._notes("bills")]

    @property
    def done(self) -> list[str]:
        """Return the spools of the agents that succeeded."""
        return [spool for spool, act in self._notes("bills") if not Path(f"{act}.fails").exists()]

    def _notes(self, name: str) -> list[list[str]]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / name).read_text().splitlines()
            return [
                words for words in (line.split(maxsplit=1) for line in lines) if words
            ]  # `doctor` plays, too, without a spool
        return []

    def _write(self, path: Path, act: Act) -> None:
        lines = (RECORDINGS / f"{act.recording}.jsonl").read_text().splitlines()
        path.write_text(_paced([_unbilled(line) for line in lines[:-1]], act.length_s))
        for name in ("fails", "stops"):
            if getattr(act, name):
                Path(f"{path}.{name}").touch()
        if act.floods:
            Path(f"{path}.floods").write_text(f"{act.floods}\n")
        if act.has_report:
            report, self._bills[str(path)] = _billed(json.loads(lines[-1]), self._rng)
            Path(f"{path}.report").write_text(json.dumps(report, separators=(",", ":")) + "\n")

    def _program(self, name: str, text: str, **words: str) -> Path:
        path = self._folder / name
        path.write_text((_STARTED + text).format(**self._words, **words))
        path.chmod(0o755)
        return path


def _paced(lines: Sequence[str], length_s: float) -> str:
    """Return the lines with a pause after each."""
    pause = f'{{"after_ms":{length_s * 1000 / len(lines):.0f}}}\n'
    return "".join(f"{line}\n{pause}" for line in lines)


def _unbilled(line: str) -> str:
    """Return the line with all its usage set to 0."""
    return json.dumps(_without_usage(json.loads(line)), separators=(",", ":"))


def _without_usage(value: Any, *, counts: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _without_usage(item, counts=counts or key == "usage") for key, item in value.items()}
    if isinstance(value, list):
        return [_without_usage(item, counts=counts) for item in value]
    return 0 if counts and type(value) is int else value


def _billed(report: dict[str, Any], rng: random.Random) -> tuple[dict[str, Any], Bill]:
    """Return the report with a random bill above what its lines report, so that no sum is correct by accident."""
    bill: Bill = {}
    for model, used in report["modelUsage"].items():
        tokens = Tokens(*(used[name] + rng.randrange(1, 10_000) for name in _COUNTS))
        bill[model] = ModelUsage(tokens, rng.randrange(1, 10**6) / 10**6)
        used |= {**dict(zip(_COUNTS, _counts(tokens), strict=True)), "costUSD": bill[model].cost_usd}
    total = sum((used.tokens for used in bill.values()), Tokens())
    report["usage"] |= dict(zip(TOKEN_KINDS, _counts(total), strict=True))
    report["total_cost_usd"] = sum(used.cost_usd or 0.0 for used in bill.values())
    return report, bill


def _counts(tokens: Tokens) -> list[int]:
    return [getattr(tokens, kind) for kind in TOKEN_KINDS]
