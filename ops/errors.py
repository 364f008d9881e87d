"""Errors of the `ops` package.

    OpsError
    ├── SettingsError           a setting is unusable; names it and where it was read
    ├── PortTaken               the metrics server cannot listen on its port
    ├── ArchiveUnavailable      the transcript archive is unreachable or not writable
    ├── NoTranscript            the archive has no transcript of that turn
    └── LedgerError
        ├── LedgerUnavailable   unreachable, locked too long, disk full: nothing was written, try again later
        ├── LedgerTooNew        written by a newer runturn
        ├── UnknownTurn         no such turn
        ├── StaleClaim          another worker now owns the turn
        ├── AttemptOpen         the last attempt is not booked yet
        └── EventGap            events are missing between the stored and the offered ones

Each message says what happened, where, and what to do. None contains a password, a prompt or SQL.
"""

from __future__ import annotations


class OpsError(Exception):
    """Base class of errors reported to the operator."""


class SettingsError(OpsError):
    """A setting is unusable."""

    def __init__(self, message: str, *, field: str, where: str | None = None) -> None:
        self.field = field  # dotted, as in the file: agent.turn_timeout_ms
        self.where = where  # the file, or the environment variable
        super().__init__(": ".join(part for part in (where, field, message) if part))


class PortTaken(OpsError):
    """The metrics server cannot listen on its port."""


class ArchiveUnavailable(OpsError):
    """The transcript archive cannot be reached, written or read. Try again later: nothing is lost."""


class NoTranscript(OpsError):
    """The archive has no transcript of that turn."""


class LedgerError(OpsError):
    """Base class of ledger errors."""


class LedgerUnavailable(LedgerError):
    """The ledger cannot be reached or written. The current transaction was rolled back, or its outcome is unknown.

    Every operation is safe to repeat: none books or settles anything twice.
    """


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer version of runturn."""


class UnknownTurn(LedgerError):
    """The ledger has no such turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"the ledger has no turn {turn_id}; see: runturn history")


class StaleClaim(LedgerError):
    """The turn now belongs to another worker. Leave it alone: nothing was written."""

    def __init__(self, turn_id: str, epoch: int) -> None:
        super().__init__(f"turn {turn_id}: the claim of epoch {epoch} was released or taken over")


class AttemptOpen(LedgerError):
    """An attempt is open: book its usage first, or it will be lost."""

    def __init__(self, turn_id: str, attempt: int) -> None:
        super().__init__(f"turn {turn_id}: attempt {attempt} has not ended yet")


class EventGap(LedgerError):
    """Events are missing between the last stored and the first offered one."""

    def __init__(self, turn_id: str, last_seq: int, first_seq: int) -> None:
        super().__init__(f"turn {turn_id}: event {first_seq} offered, but the last one stored is {last_seq}")
