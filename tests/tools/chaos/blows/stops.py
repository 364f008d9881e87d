"""Blows that stop processes of running turns with SIGSTOP: supervisors, watchers, agents.

Stopped shells are for the host's other shells to continue or replace. Agents are continued after a while, and
their turns go on as if nothing had happened; those that stop for good are a kind of turn, see `Kind.STUCK`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from tests.support.waiting import text_of, until
from tests.tools.chaos.blows.blow import Blow
from tests.tools.chaos.blows.running import Running, strike_one
from tests.tools.chaos.stage import Stage

_STOPPED_S = (1.0, 8.0)


def on_processes(stage: Stage, rng: random.Random) -> list[Blow]:
    """Return the blows that stop processes of turns."""
    kinds = [
        lambda: _on_shell(stage, rng, "supervisor"),
        lambda: _on_shell(stage, rng, "watcher"),
        lambda: _on_agent(stage, rng),
    ]
    return [kinds[n % 3]() for n in range(stage.form.stop_blows)]


def _on_shell(stage: Stage, rng: random.Random, name: str) -> Blow:
    choice = random.Random(rng.random())

    def strike() -> None:
        struck = strike_one(
            stage, choice, lambda each: each.pid(name) > 0, lambda each: os.kill(_pid(each, name), signal.SIGSTOP)
        )
        stage.story.tell(f"the {name} of {struck.spool} is stopped")

    return Blow(f"a {name} is stopped", strike)


def _on_agent(stage: Stage, rng: random.Random) -> Blow:
    choice, lasts_s = random.Random(rng.random()), rng.uniform(*_STOPPED_S)
    stopped: dict[int, float] = {}  # when to continue which group

    def stop(each: Running) -> None:
        group = _pid(each, "agent")
        os.killpg(group, signal.SIGSTOP)
        stopped[group] = time.monotonic() + lasts_s
        if _is_reporting(group):
            _continue(group)
            raise ProcessLookupError

    def strike() -> None:
        struck = strike_one(stage, choice, lambda each: True, stop)
        stage.story.tell(f"the agent of {struck.spool} is stopped")

    def mend() -> None:
        for group, when in stopped.items():
            time.sleep(max(0.0, when - time.monotonic()))  # the storm may have waited for a turn to strike
            _continue(group)

    return Blow("an agent is stopped", strike, lasts_s, mend)


def _pid(each: Running, name: str) -> int:
    """Return a pid to signal: 0 would be our own process group."""
    if not (pid := each.pid(name)):
        raise ProcessLookupError
    return pid


def _is_reporting(pid: int) -> bool:
    """Return True for a player that prints its report and records it as its bill: that must remain one step.

    Only then does it ignore SIGTERM.
    """
    process = Path(f"/proc/{pid}")
    until(lambda: _is_still(text_of(process / "stat")), f"{pid} to stop")
    status = dict(line.split(":", 1) for line in text_of(process / "status").splitlines())
    return bool(int(status.get("SigIgn", "0"), 16) >> (signal.SIGTERM - 1) & 1)


def _is_still(stat: str) -> bool:
    state = stat.rpartition(")")[2].split()[:1]
    return not state or state[0] in "TZX"


def _continue(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGCONT)
