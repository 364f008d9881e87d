"""Workspaces made for turns."""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from ops.ledger.models import Claim
from ops.ledger.rows import change, held, open_attempt
from ops.ledger.schema import attempts, sessions, turns


@dataclass(frozen=True, slots=True)
class MadeWorkspace:
    """The ledger's record of a workspace made for a turn."""

    settled_at: float | None  # of the turn; None: the turn may still need it
    kept: bool  # the turn requested that, or its request is already removed
    path: str | None  # on its host


def place(connection: Connection, claim: Claim, workspace: str) -> None:
    """Record the workspace made for the open attempt. Raises StaleClaim.

    Call it before the agent starts: without it, a successor assumes that none was started. Killed before: the
    successor finds the workspace on the host.
    """
    held(connection, claim)
    change(connection, claim.turn_id, workspace=workspace)
    attempt = open_attempt(connection, claim.turn_id)
    if attempt is not None:
        ours = sa.and_(attempts.c.turn_id == claim.turn_id, attempts.c.attempt == attempt.attempt)
        connection.execute(attempts.update().where(ours).values(workspace=workspace))
    locked = sessions.c.locked_by == claim.turn_id
    connection.execute(sessions.update().where(locked).values(workspace=workspace))


def made(connection: Connection, turn_id: str) -> MadeWorkspace | None:
    """Return the record of a turn's workspace; None if the turn is not recorded."""
    query = sa.select(turns.c.settled_at, turns.c.workspace, turns.c.request)
    row = connection.execute(query.where(turns.c.turn_id == turn_id)).mappings().first()
    if row is None:
        return None
    # A request is removed long before its turn, while other turns may still use the workspace.
    kept = row["request"] is None or bool(json.loads(row["request"]).get("keep_workspace"))
    return MadeWorkspace(row["settled_at"], kept, row["workspace"])


def used_at(connection: Connection, workspace: str) -> float | None:
    """Return when the last turn in a workspace was settled; None if one is unsettled. Reads all turns."""
    ends = sa.select(sa.func.max(turns.c.settled_at), sa.func.count() - sa.func.count(turns.c.settled_at))
    last, open_turns = connection.execute(ends.where(turns.c.workspace == workspace)).one()
    return None if open_turns else last
