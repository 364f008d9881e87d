"""Delivers turns' events to watchers (over the broker) and to later readers (through the ledger)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from ops.errors import LedgerUnavailable, StaleClaim
from ops.ledger import Batch, Claim, Ledger
from workers.events.bus import Publisher
from workers.events.model import AnyEvent, to_wire

_AT_ONCE = 200  # turns per transaction
_PERIOD_S = 0.25  # how long an event may wait to be written with others

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    """Events of one turn that the ledger does not have yet."""

    claim: Claim
    batches: list[tuple[int, list[bytes]]] = field(default_factory=list)

    def next(self) -> tuple[int, Batch]:
        """Merge the first contiguous batches, and return their number: a busy turn costs one row per period."""
        first_seq, first_lines = self.batches[0]
        count, lines = 1, list(first_lines)
        while count < len(self.batches) and self.batches[count][0] == first_seq + len(lines):
            lines += self.batches[count][1]
            count += 1
        return count, Batch(self.claim, first_seq, lines)


class EventWriter:
    """Publishes at once; writes to the ledger in batches, from a separate thread."""

    def __init__(self, ledger: Ledger, publisher: Publisher) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._waiting: dict[str, _Waiting] = {}
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="events-writer", daemon=True)
        self._thread.start()

    def emit(self, claim: Claim, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        """Publish and store events of a turn, numbered from `first_seq`; return at once."""
        lines = self._store(claim, first_seq, events, at)
        self._publisher.publish(claim.turn_id, first_seq, lines)

    def store(self, claim: Claim, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        """Store events without publishing them yet."""
        self._store(claim, first_seq, events, at)

    def publish(self, turn_id: str, first_seq: int, events: Sequence[AnyEvent], at: float) -> None:
        """Publish events without storing them."""
        self._publisher.publish(turn_id, first_seq, _lines(first_seq, events, at))

    def flush(self, turn_id: str) -> None:
        """Write a turn's waiting events. Raises LedgerUnavailable, StaleClaim."""
        with self._writing:
            self._write(turn_id)

    def close(self, within_s: float = 5.0) -> None:
        """Write what is waiting, then stop; wait at most `within_s` seconds for the ledger."""
        self._stop.set()
        self._thread.join(within_s)

    def _store(self, claim: Claim, first_seq: int, events: Sequence[AnyEvent], at: float) -> list[bytes]:
        lines = _lines(first_seq, events, at)
        with self._mutex:
            waiting = self._waiting.get(claim.turn_id)
            if waiting is None or waiting.claim.epoch < claim.epoch:
                waiting = self._waiting[claim.turn_id] = _Waiting(claim)
            if waiting.claim.epoch == claim.epoch:  # else this same worker has taken over the claim
                waiting.batches.append((first_seq, lines))
        return lines

    def _write(self, turn_id: str) -> None:
        while (waiting := self._waiting.get(turn_id)) is not None:
            with self._mutex:
                count, batch = waiting.next()
            self._ledger.events.append(batch.claim, batch.first_seq, batch.lines)
            self._forget(turn_id, waiting, count)

    def _forget(self, turn_id: str, waiting: _Waiting, count: int | None = None) -> None:
        """Drop the first `count` batches of a turn, or all."""
        with self._mutex:
            del waiting.batches[:count]
            if not waiting.batches and self._waiting.get(turn_id) is waiting:
                del self._waiting[turn_id]

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._flush_quietly()
        self._flush_quietly()

    def _flush_quietly(self) -> None:
        try:
            with self._writing:
                self._write_all()
        except LedgerUnavailable as error:
            log.warning("events are waiting for the ledger", error=str(error))
        except Exception:
            log.exception("cannot store events together; storing them turn by turn")
            self._flush_each()

    def _write_all(self) -> None:
        """Write a batch of each turn, in one transaction for many turns."""
        with self._mutex:
            found = [(waiting, *waiting.next()) for waiting in self._waiting.values()]
        for start in range(0, len(found), _AT_ONCE):
            some = found[start : start + _AT_ONCE]
            # Turns that accept no more have a new owner, which reads their events from the spool.
            refused = self._ledger.events.append_many([batch for _, _, batch in some])
            for waiting, count, batch in some:
                turn_id = batch.claim.turn_id
                self._forget(turn_id, waiting, None if turn_id in refused else count)

    def _flush_each(self) -> None:
        for turn_id, waiting in list(self._waiting.items()):
            try:
                self.flush(turn_id)
            except LedgerUnavailable as error:
                log.warning("events are waiting for the ledger", error=str(error))
                return
            except StaleClaim:
                self._forget(turn_id, waiting)
            except Exception:
                # Settling the turn reveals the gap. Without this thread, all turns here would have one.
                log.exception("cannot store events", turn_id=turn_id)
                self._forget(turn_id, waiting)


def _lines(first_seq: int, events: Sequence[AnyEvent], at: float) -> list[bytes]:
    return [to_wire(event, seq, at) for seq, event in enumerate(events, first_seq)]
