"""Hosts that workers have announced. A turn need not wait for a host that none has announced for long."""

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
REMEMBERED_S = 86_400.0  # a machine may be down for hours while its turns wait


@dataclass(frozen=True, slots=True)
class Seen:
    """A host as announced by a worker."""

    labels: Labels
    at: float  # when it was last announced, to the minute


def announce(connection: Connection, known: Mapping[str, Labels], now: float) -> None:
    """Announce a worker's hosts with their labels; repeat about once a minute."""
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
    """Return the hosts that workers have announced within the last day, by name."""
    found: dict[str, list[Seen]] = {}
    query = sa.select(hosts.c.name, hosts.c.labels, hosts.c.seen_at).order_by(hosts.c.name, hosts.c.labels)
    for name, labels, seen_at in connection.execute(query):
        found.setdefault(name, []).append(Seen(json.loads(labels), seen_at))
    return found
