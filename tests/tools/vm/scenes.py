"""What only a machine with systemd, cgroup v2 and a power switch can show, by turns of a real worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from adapters.protocol.result import Status, TurnResult
from tests.support.fleets.fleet import Fleet
from tests.support.waiting import until
from tests.tools.vm.machine import VirtualMachine

_GIB = 2**30
_WAIT_S = 600.0  # the machine is an emulated one
Scene: TypeAlias = Callable[[VirtualMachine, Fleet, str], str]


@contextmanager
def fleet(machine: VirtualMachine, user: str, root: Path) -> Iterator[Fleet]:
    """A worker whose only host is the machine, as one of its users."""
    host = {
        "name": "vm",
        "address": "127.0.0.1",
        "port": machine.port,
        "user": user,
        "identity": str(machine.key),
        "agents": {"scripted": "/usr/local/bin/actor"},
    }
    root.mkdir()
    with Fleet(root, ssh_hosts=json.dumps([host]), ssh__connect_timeout_ms="120000") as working:
        working.start_worker()
        yield working


def memory(machine: VirtualMachine, fleet: Fleet, user: str) -> str:
    """End a turn with a limit of 1 GiB that takes 4 within 10 s of its start, by its own kind, with its usage."""
    began = time.monotonic()
    result = _run(fleet, user, "hungry", max_memory=_GIB)
    assert result.error is not None
    assert result.error.kind == "memory_exceeded", result.error
    assert result.usage.tokens.total > 0
    assert result.peak_memory_bytes is None or result.peak_memory_bytes <= 1.1 * _GIB
    return (
        f"{result.error.kind} after {time.monotonic() - began:.1f} s, {result.usage.tokens.total:,} tokens booked"
    )


def cpus(machine: VirtualMachine, fleet: Fleet, user: str) -> str:
    """Keep a turn that would use a whole processor for 10 s to half of one."""
    free = _run(fleet, user, "busy")
    held = _run(fleet, user, "busy", max_cpus=0.5)
    assert (free.status, held.status) == (Status.COMPLETED, Status.COMPLETED), (free.error, held.error)
    assert free.cpu_ms is not None
    assert held.cpu_ms is not None
    assert free.cpu_ms > 9_000
    assert held.cpu_ms < 6_500
    return f"{free.cpu_ms:,} ms of CPU without a limit, {held.cpu_ms:,} ms with half a processor"


def power(machine: VirtualMachine, fleet: Fleet, user: str) -> str:
    """Run a turn again whose host has lost its power and boots, once, with all that was used."""
    turn_id = fleet.client.enqueue(_request(fleet, user, "patient"))
    been_here = f"test -e {_home(user)}/been-here"
    until(lambda: machine.run(user, been_here), "the turn to begin", _WAIT_S)
    machine.cut_power()
    machine.boot()
    result = fleet.client.result(turn_id, _WAIT_S)
    assert (result.status, result.attempts) == (Status.COMPLETED, 2), result.error
    assert not result.usage_complete, "the first attempt may have used more than it could tell"
    return f"completed at attempt {result.attempts}, {result.usage.tokens.total:,} tokens booked"


def nothing_left(machine: VirtualMachine, user: str) -> None:
    """Assert that no scope and no process of any turn is left."""
    scopes = "systemctl list-units --all --plain --no-legend 'runturn-*' | grep -q ."
    manager = scopes.replace("systemctl", "systemctl --user") if user != "root" else scopes
    until(lambda: not machine.run(user, manager), "the scopes to go", _WAIT_S)
    until(lambda: not machine.run(user, "pgrep -x actor"), "the agents to go", _WAIT_S)


SCENES: Mapping[str, Scene] = {"memory": memory, "cpus": cpus, "power": power}


def _run(fleet: Fleet, user: str, act: str, **fields: Any) -> TurnResult:
    return fleet.client.result(fleet.client.enqueue(_request(fleet, user, act, **fields)), _WAIT_S)


def _request(fleet: Fleet, user: str, act: str, **fields: Any) -> Any:
    return fleet.recorded(Path("/usr/local/bin") / act, workspace=_home(user), host="vm", **fields)


def _home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"
