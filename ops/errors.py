"""What can go wrong in the operator's room.

    OpsError
    ├── SettingsError           a setting, named with the place it was read from
    ├── PortTaken               the metrics port
    ├── ArchiveUnavailable      the archive of transcripts: not reachable, or not writable
    ├── NoTranscript            the archive has none of that turn
    └── LedgerError
        ├── LedgerUnavailable   not reachable, locked for too long, disk full: nothing was written, try again later
        ├── LedgerTooNew        written by a newer runturn
        ├── UnknownTurn         no such turn
        ├── StaleClaim          another worker owns the turn now
        ├── AttemptOpen         the last attempt was not booked yet
        └── EventGap            events are missing between those stored and those offered

Each text says what happened, where, and what to do. None holds a password, a prompt or SQL.
"""

from __future__ import annotations


class OpsError(Exception):
    """Something that an operator has to know."""


class SettingsError(OpsError):
    """A setting cannot be used."""

    def __init__(self, message: str, *, field: str, where: str | None = None) -> None:
        self.field = field  # dotted, as in the file: agent.turn_timeout_ms
        self.where = where  # the file, or the environment variable
        super().__init__(": ".join(part for part in (where, field, message) if part))


class PortTaken(OpsError):
    """The metrics server cannot listen."""


class ArchiveUnavailable(OpsError):
    """The archive of transcripts cannot be reached, written or read. Try again later: nothing is lost."""


class NoTranscript(OpsError):
    """The archive has no transcript of that turn."""


class LedgerError(OpsError):
    """The ledger refused."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be reached or written. The transaction in hand was rolled back, or its fate is unknown.

    Every operation may simply be repeated: none of them books or settles anything twice.
    """


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer version of runturn."""


class UnknownTurn(LedgerError):
    """The ledger has no such turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"the ledger has no turn {turn_id}; see: runturn history")


class StaleClaim(LedgerError):
    """The turn belongs to another worker now. Leave it alone: nothing was written."""

    def __init__(self, turn_id: str, epoch: int) -> None:
        super().__init__(f"turn {turn_id}: the claim of epoch {epoch} was released or taken over")


class AttemptOpen(LedgerError):
    """An attempt is open: its usage has to be booked first, or it would be lost."""

    def __init__(self, turn_id: str, attempt: int) -> None:
        super().__init__(f"turn {turn_id}: attempt {attempt} has not ended yet")


class EventGap(LedgerError):
    """Events are missing between the last one stored and the first one offered."""

    def __init__(self, turn_id: str, last_seq: int, first_seq: int) -> None:
        super().__init__(f"turn {turn_id}: event {first_seq} offered, but {last_seq} is the last one stored")
