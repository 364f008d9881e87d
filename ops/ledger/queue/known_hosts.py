"""Which hosts the workers know. A turn for one that nobody has known for long need not wait for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.database import upsert
from ops.ledger.schema import hosts

Labels = Mapping[str, str]


REFRESH_S = 60.0
REMEMBERED_S = 86_400.0  # a machine may be down for hours, and its turns wait


@dataclass(frozen=True, slots=True)
class Seen:
    """What some worker says, or said, of a host."""

    labels: Labels
    at: float  # when it was said last, to a minute


def announce(connection: Connection, known: Mapping[str, Labels], now: float) -> None:
    """Say that a worker knows these hosts, which have these labels; to be repeated about once a minute."""
    connection.execute(hosts.delete().where(hosts.c.seen_at <= now - REMEMBERED_S))
    fresh = sa.select(hosts.c.name, hosts.c.labels).where(hosts.c.seen_at > now - REFRESH_S)
    said = {(name, labels) for name, labels in connection.execute(fresh)}
    mine = {(name, json.dumps(dict(labels), sort_keys=True)) for name, labels in known.items()}
    rows = [{"name": name, "labels": labels, "seen_at": now} for name, labels in sorted(mine - said)]
    if rows:
        statement = upsert(connection.dialect.name, hosts)
        update = statement.on_conflict_do_update(
            index_elements=["name", "labels"], set_={"seen_at": statement.excluded.seen_at}
        )
        connection.execute(update, rows)


def known(connection: Connection) -> dict[str, list[Seen]]:
    """The hosts that workers have known within the last day, by name."""
    found: dict[str, list[Seen]] = {}
    query = sa.select(hosts.c.name, hosts.c.labels, hosts.c.seen_at).order_by(hosts.c.name, hosts.c.labels)
    for name, labels, seen_at in connection.execute(query):
        found.setdefault(name, []).append(Seen(json.loads(labels), seen_at))
    return found
