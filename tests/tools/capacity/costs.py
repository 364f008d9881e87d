"""What the servers of a fleet have to carry, from what one turn costs them, and into how many to split them.

The figures are inputs: `TURN` was measured on one machine of two cores, with the short turns of `make bench`;
measure your own, and call `costs` with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_S = 86_400.0
KIB, MIB, GIB = 1024, 1024**2, 1024**3


@dataclass(frozen=True, slots=True)
class Prices:
    """What one turn costs."""

    ledger_transactions: float = 12  # from its submission to its answer, those of its events not counted
    ledger_transaction_s: float = 0.0004  # of the database's one writer, or one of its cores
    ledger_row_bytes: float = 6 * KIB  # a settled turn with its request, result, attempt, usage and indexes
    broker_commands: float = 5  # its message, its acknowledgement, its result; those of its events not counted
    events: float = 60  # of a turn of a few minutes: some ten tool calls
    event_bytes: float = 1_200  # published once and stored once
    event_transactions: float = 0.5  # the ledger takes together what comes within a quarter of a second
    worker_memory_bytes: float = 80 * KIB  # while it runs
    cpu_s: float = 0.030  # of its worker, and of its host but for the agent


@dataclass(frozen=True, slots=True)
class Overheads:
    """What is spent whether turns come or not, or by the second."""

    worker_transactions_per_s: float = 2  # a look for turns, a renewal of leases
    lease_row_s: float = 0.00001  # a second, for one running turn, whose lease is renewed every 5 s
    worker_memory_bytes: float = 100 * MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of it one server takes at ease: about half of what it can do."""

    ledger_busy: float = 0.5  # of one database's writer
    broker_commands_per_s: float = 25_000  # of one Redis or Valkey, which has one thread
    event_bytes_per_s: float = 50 * MIB  # of one Redis: in, and out again to those who watch
    worker_turns: int = 1_000  # at a time
    worker_busy: float = 0.5  # of one core: its process has one loop
    events_retention_s: float = 30 * DAY_S  # `events_retention_ms`
    turns_retention_s: float = 400 * DAY_S  # `turns_retention_ms`


TURN = Prices()
OVERHEADS = Overheads()
LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a fleet."""

    workers: int
    worker_cores: float
    worker_memory_bytes: float  # of all workers
    ledger_transactions_per_s: float
    ledger_busy: float  # seconds of one writer a second
    ledgers: int  # databases to split it into
    ledger_bytes_per_day: float
    ledger_bytes: float  # when retention and growth are in balance
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
    """Of `per_s` turns a second, `running` of them at a time."""
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
