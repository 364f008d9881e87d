"""Which workers are there, and the hosts that each knows: turns for a host that nobody knows need not wait."""

from __future__ import annotations

import json
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import upsert
from ops.ledger.schema import workers

Labels = Mapping[str, str]


def announce(
    connection: Connection, owner: str, hosts: Mapping[str, Labels], now: float, ttl: float
) -> dict[str, list[Labels]]:
    """Say that a worker is there, and hear who else is: the labels that hosts have, by host."""
    connection.execute(workers.delete().where(workers.c.expires <= now))
    row = {"hosts": json.dumps({name: dict(labels) for name, labels in hosts.items()}), "expires": now + ttl}
    statement = upsert(connection, workers).values(owner=owner, **row)
    connection.execute(statement.on_conflict_do_update(index_elements=["owner"], set_=row))
    known: dict[str, list[Labels]] = {}
    for document in connection.scalars(sa.select(workers.c.hosts)):
        for name, labels in json.loads(document).items():
            known.setdefault(name, []).append(labels)
    return known


def leave(connection: Connection, owner: str) -> None:
    """Say that a worker has gone."""
    connection.execute(workers.delete().where(workers.c.owner == owner))
