"""Turns that bring data to the dashboards: recordings of Claude Code, replayed with their timing, at no cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from adapters.protocol.request import TurnRequest
from ops.ledger import Ledger
from tests.support.places import RECORDINGS
from tests.tools.stack.stack import Stack
from workers.app import create_app
from workers.client.sync import Client

# What most turns are like: tools, a subagent, a rate limit that passes; and one in six that fails.
_PLAYED = ("a_parallel_tools", "b_agentic_steps", "c_subagent", "h_429_then_ok", "a_parallel_tools", "e_api_400")
_TEAMS = ("web", "docs")


def recording(name: str) -> Path:
    """Where one of them is."""
    return RECORDINGS / f"{name}.jsonl"


def requests(stack: Stack, count: int) -> Iterator[TurnRequest]:
    """Requests of two teams and two producers; one in four asks for a worker's own machine."""
    teams, names = itertools.cycle(_TEAMS), itertools.cycle(_PLAYED)
    for number, team, name in zip(range(count), teams, names, strict=False):
        own = {"host": f"worker{1 + number // 4 % 2}"} if number % 4 == 3 else {}
        yield TurnRequest.parse(
            {
                "prompt": f"Recorded turn {number + 1}: {name}",
                "workspace": str(stack.workspace),
                "agent": "scripted",
                "options": {"recording": str(recording(name))},
                "labels": {"team": team},
                "producer": f"{team}-bot",
                **own,
            }
        )


def client_of(stack: Stack) -> Client:
    """A producer with the stack's own secrets."""
    broker = (stack.secrets / "runturn_broker_url").read_text()
    return Client(create_app(broker), Ledger.open((stack.secrets / "runturn_ledger_url").read_text()))


def queue(stack: Stack, count: int) -> list[str]:
    """Queue so many turns; returns their ids."""
    client = client_of(stack)
    return [client.enqueue(request) for request in requests(stack, count)]
