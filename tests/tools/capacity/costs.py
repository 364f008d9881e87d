"""Load on a fleet's servers, from what one turn costs them, and how many servers to split it over.

The figures are inputs: `TURN` was measured on one machine with two cores, with the short turns of `make bench`;
measure your own, and call `costs` with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_S = 86_400.0
KIB, MIB, GIB = 1024, 1024**2, 1024**3


@dataclass(frozen=True, slots=True)
class Prices:
    """Costs of one turn."""

    ledger_transactions: float = 12  # from submission to answer, without those of its events
    ledger_transaction_s: float = 0.0004  # of the database's one writer, or of one core
    ledger_row_bytes: float = 6 * KIB  # a settled turn with its request, result, attempt, usage and indexes
    broker_commands: float = 5  # its message, acknowledgement and result, without those of its events
    events: float = 60  # of a turn of a few minutes: about ten tool calls
    event_bytes: float = 1_200  # published once and stored once
    event_transactions: float = 0.5  # the ledger batches what arrives within a quarter of a second
    worker_memory_bytes: float = 80 * KIB  # while it runs
    cpu_s: float = 0.030  # of its worker, and of its host without the agent


@dataclass(frozen=True, slots=True)
class Overheads:
    """Costs without turns, and costs per second."""

    worker_transactions_per_s: float = 2  # a check for turns, a renewal of leases
    lease_row_s: float = 0.00001  # per second and running turn, whose lease is renewed every 5 s
    worker_memory_bytes: float = 100 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Comfortable load of one server: about half of what it can handle."""

    ledger_busy: float = 0.5  # of one database's writer
    broker_commands_per_s: float = 25_000  # of one Redis or Valkey, which has one thread
    event_bytes_per_s: float = 50 * MIB  # of one Redis: in, and out again to watchers
    worker_turns: int = 1_000  # at a time
    worker_busy: float = 0.5  # of one core: its process has one loop
    events_retention_s: float = 30 * DAY_S  # `events_retention_ms`
    turns_retention_s: float = 400 * DAY_S  # `turns_retention_ms`


TURN = Prices()
OVERHEADS = Overheads()
LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Costs:
    """Load of a fleet."""

    workers: int
    worker_cores: float
    worker_memory_bytes: float  # of all workers
    ledger_transactions_per_s: float
    ledger_busy: float  # seconds of one writer per second
    ledgers: int  # databases to split it over
    ledger_bytes_per_day: float
    ledger_bytes: float  # once retention balances growth
    broker_commands_per_s: float
    event_bytes_per_s: float
    brokers: int  # for the queue and the results
    event_brokers: int  # for the event stream


def costs(
    per_s: float,
    running: float,
    turn: Prices = TURN,
    overheads: Overheads = OVERHEADS,
    limits: Limits = LIMITS,
) -> Costs:
    """Return the load of `per_s` turns per second, `running` of them at a time."""
    cores = per_s * turn.cpu_s
    workers = max(math.ceil(running / limits.worker_turns), math.ceil(cores / limits.worker_busy), 1)
    transactions = per_s * (turn.ledger_transactions + turn.events * turn.event_transactions)
    transactions += workers * overheads.worker_transactions_per_s
    busy = transactions * turn.ledger_transaction_s + running * overheads.lease_row_s
    events_per_s, rows_per_s = per_s * turn.events * turn.event_bytes, per_s * turn.ledger_row_bytes
    commands = per_s * turn.broker_commands
    published = per_s * turn.events  # one PUBLISH each
    streams = max(published / limits.broker_commands_per_s, events_per_s / limits.event_bytes_per_s)
    return Costs(
        workers=workers,
        worker_cores=cores,
        worker_memory_bytes=workers * overheads.worker_memory_bytes + running * turn.worker_memory_bytes,
        ledger_transactions_per_s=transactions,
        ledger_busy=busy,
        ledgers=max(math.ceil(busy / limits.ledger_busy), 1),
        ledger_bytes_per_day=(events_per_s + rows_per_s) * DAY_S,
        ledger_bytes=events_per_s * limits.events_retention_s + rows_per_s * limits.turns_retention_s,
        broker_commands_per_s=commands,
        event_bytes_per_s=events_per_s,
        brokers=max(math.ceil(commands / limits.broker_commands_per_s), 1),
        event_brokers=max(math.ceil(streams), 1),
    )
