"""Claiming a given turn, for tests of what follows the claim."""

from __future__ import annotations

from ops.ledger import Claim, Ledger, State
from ops.ledger.queue.claims import claimed
from ops.ledger.rows import locked


def claim_turn(ledger: Ledger, turn_id: str, owner: str, now: float, ttl: float) -> Claim | None:
    """Claim this turn, as `Queue.take` claims each turn; return None if it is not available now."""
    with ledger._database.write() as connection:
        row = locked(connection, turn_id)
        free_from = row["owner_expires"] if row["state"] == State.RUNNING else row["due_at"]
        free = free_from is not None and free_from <= now
        return claimed(connection, row, owner, now, ttl) if free else None
