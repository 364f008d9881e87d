"""The commands that new users run on a bare machine, in order, and their outcomes."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.tools.fresh.machine import ROOT, Machine, Person, Run, tarball

_CLOSING = re.compile(r"^=*\s*((?:\d+ \w+,? ?)+) in [\d.]+s", re.MULTILINE)
_REMEDY = re.compile(r"^\s*(?:sudo )?(apt-get install .*)$", re.MULTILINE)
_DUMB = {"TERM": "dumb"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one command."""

    release: str
    who: str
    command: str
    faults: tuple[str, ...]  # none: it passed
    said: str  # its closing words
    seconds: float


def visit(release: str, kinds: frozenset[str], folder: Path) -> Iterator[Outcome]:
    """Run the commands as these kinds of users on machines with this Debian release; write logs to the folder."""
    sources = subprocess.run(["git", "archive", "HEAD"], check=True, capture_output=True).stdout
    for name, play in _MACHINES.items():
        if not kinds & _KINDS[name]:
            continue
        machine = Machine(tarball(release, folder), folder / f"{release}-{name}")
        try:
            yield from play(_Stage(machine, sources, release, folder), kinds)
        finally:
            machine.remove()


KINDS = ("root", "plain", "equipped", "blank")
_KINDS = {"roots": frozenset({"root"}), "users": frozenset({"plain", "equipped", "blank"})}


class _Stage:
    """A machine and the sources to unpack on it."""

    def __init__(self, machine: Machine, sources: bytes, release: str, folder: Path) -> None:
        self.machine = machine
        self._sources = sources
        self._release = release
        self._folder = folder

    def unpack(self, person: Person, folder: str) -> None:
        self.machine.unpack(self._sources, person, folder)

    def play(
        self,
        who: str,
        person: Person,
        folder: str,
        target: str,
        environment: Mapping[str, str],
        check: Callable[[Run], Iterator[str]],
    ) -> tuple[Outcome, Run]:
        """Run one of README's commands."""
        began = time.monotonic()
        log = self._folder / f"{self._release}-{who}.log"
        run = self.machine.run(person, ["make", target], folder, environment, log)
        faults = (*check(run), *(f"left behind: {what}" for what in run.left))
        took = time.monotonic() - began
        return Outcome(self._release, who, f"make {target}", faults, _closing(run), took), run

    def both(
        self, who: str, person: Person, folder: str, environment: Mapping[str, str], *, lacking: bool = False
    ) -> Iterator[Outcome]:
        """Run `make demo` and `make test`; with `lacking`, tests may skip for missing programs."""
        yield self.play(who, person, folder, "demo", environment, _passes)[0]
        check = _passes if lacking else _lacks_nothing
        yield self.play(who, person, folder, "test", environment, check)[0]


def _roots(stage: _Stage, kinds: frozenset[str]) -> Iterator[Outcome]:
    """Run as root, in a home that only root may enter, in the environment of cron."""
    stage.unpack(ROOT, "/root/runturn")
    yield from stage.both("root", ROOT, "/root/runturn", _DUMB)


def _users(stage: _Stage, kinds: frozenset[str]) -> Iterator[Outcome]:
    """Run as a plain user without programs, again after root has installed them, then in a path with a space."""
    user, folder = stage.machine.add("newcomer"), "/home/newcomer/runturn"
    stage.unpack(user, folder)
    yield stage.play("plain", user, folder, "install", {}, _names_what_is_missing)[0]
    _administer(stage.machine, "apt-get update -q && apt-get install -qy python3-venv")
    programs = ""
    if "plain" in kinds:
        yield stage.play("plain", user, folder, "demo", {}, _passes)[0]
        outcome, run = stage.play("plain", user, folder, "test", {}, _passes)
        remedy = _REMEDY.search(run.output)
        programs = remedy[1] if remedy else ""
        yield outcome if remedy else replace(outcome, faults=(*outcome.faults, "no apt-get line at the end"))
    if not kinds & {"equipped", "blank"}:
        return
    _administer(stage.machine, _without_servers(programs) if programs else f"cd {folder} && .ci/test-tools")
    if "equipped" in kinds:
        yield from stage.both("equipped", user, folder, {"TERM": "xterm-256color", "LANG": "C.UTF-8"})
    if "blank" in kinds:
        careful = replace(user, umask="077")
        stage.unpack(careful, "/home/newcomer/my runturn")
        yield from stage.both("blank", careful, "/home/newcomer/my runturn", {})


_MACHINES = {"roots": _roots, "users": _users}


def _administer(machine: Machine, script: str) -> None:
    done = machine.run(ROOT, ["sh", "-euc", f"export DEBIAN_FRONTEND=noninteractive; {script}"])
    if done.code:
        raise RuntimeError(f"{script}: {done.output[-2000:]}")


def _without_servers(install: str) -> str:
    """Return a script that installs without starting servers, as an administrator of a container does."""
    policy = "/usr/sbin/policy-rc.d"
    return f"printf '#!/bin/sh\\nexit 101\\n' >{policy}; chmod 755 {policy}; {install} --yes"


def _passes(run: Run) -> Iterator[str]:
    if run.code:
        yield f"exit status {run.code}"


def _lacks_nothing(run: Run) -> Iterator[str]:
    yield from _passes(run)
    if (remedy := _REMEDY.search(run.output)) is not None:
        yield f"tests skipped because programs are missing: {remedy[1]}"


def _names_what_is_missing(run: Run) -> Iterator[str]:
    """Check that a plain user, who lacks venv with Debian's python3, learns what root must install."""
    if not run.code:
        yield "make install passed without python3-venv"
    if re.search(r"apt(-get)? install python3[.\d]*-venv", run.output) is None:
        yield f"the output does not say to install python3-venv: {run.output[-500:]}"


def _closing(run: Run) -> str:
    """Return the summary of a test run, or else the last line of output."""
    closings = _CLOSING.findall(run.output)
    if not closings:
        return run.output.strip().splitlines()[-1][:100] if run.output.strip() else ""
    return str(closings[-1]).strip()
