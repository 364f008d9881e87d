"""Requests to cancel a turn."""

from __future__ import annotations

from sqlalchemy import Connection

from ops.ledger.models import State
from ops.ledger.queue import requirements
from ops.ledger.rows import change, locked, open_attempt


def cancel(connection: Connection, turn_id: str, now: float, *, running: bool = True) -> State:
    """Request cancellation of a turn; of a running one only with `running`. Return its state.

    Its owner learns of it with the next `renew`, the next owner with its claim. A waiting turn may be taken at
    once. Raises UnknownTurn.
    """
    row = locked(connection, turn_id)
    state = State(row["state"])
    if state is State.RUNNING:
        if running:
            change(connection, turn_id, cancel_requested=True)
    elif state is not State.SETTLED:
        place = row["place"] if open_attempt(connection, turn_id) else requirements.NOWHERE
        change(connection, turn_id, cancel_requested=True, due_at=now, place=place)
    return state
