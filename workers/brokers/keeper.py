"""The keeper of `runturn up`'s embedded broker: it starts a broker that has died anew, with its data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import structlog

from workers.errors import BrokerUnavailable

_LOOK_S = 1.0
_MOST_S = 60.0  # between two tries
_STABLE_S = 60.0  # after running for so long, its next death counts as the first
_CLOSE_S = 5.0

log = structlog.get_logger(__name__)


class Broker(Protocol):
    """See `workers.brokers.embedded.EmbeddedBroker`."""

    started: bool

    @property
    def told_to_stop(self) -> bool:
        """Whether it was stopped on purpose."""

    def running(self) -> bool:
        """Return whether it runs. Raises BrokerUnavailable."""

    def ensure(self) -> bool:
        """Start it. Raises BrokerUnavailable."""

    def stop(self) -> bool:
        """Stop it. Raises BrokerUnavailable."""


class BrokerKeeper:
    """Has the broker running while it is entered. On exit, stops it if it was started here."""

    def __init__(self, broker: Broker, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._monotonic = monotonic
        self._deaths = 0
        self._tried_at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-keeper", daemon=True)

    def __enter__(self) -> Self:
        try:
            self._broker.ensure()
            self._thread.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_CLOSE_S)  # it may be starting one
        self._stop()

    def look(self) -> float:
        """Start the broker if it has died. Return the seconds until the next look: ever more if that fails."""
        try:
            if self._broker.running() or self._broker.told_to_stop:
                return _LOOK_S
        except BrokerUnavailable as error:  # frozen: only people know whether to end it
            log.error("the embedded broker does not answer", error=str(error))  # noqa: TRY400  # no fault of ours
            return self._later()
        delay_s = self._later()
        log.error("the embedded broker has died; it is started anew", next_try_s=delay_s)
        try:
            self._broker.ensure()
        except BrokerUnavailable as error:
            log.error(  # noqa: TRY400  # likewise
                "the embedded broker could not be started", error=str(error), next_try_s=delay_s
            )
        else:
            log.info("the embedded broker is running again, with its data")
        return delay_s

    def _later(self) -> float:
        now = self._monotonic()
        self._deaths = 1 if now - self._tried_at > _STABLE_S + _MOST_S else self._deaths + 1
        self._tried_at = now
        return min(_LOOK_S * 2.0 ** (self._deaths - 1), _MOST_S)

    def _run(self) -> None:
        delay_s = _LOOK_S
        while not self._over.wait(delay_s):
            try:
                delay_s = self.look()
            except Exception:  # it must outlive any fault, such as a directory that is gone
                delay_s = self._later()
                log.exception("the embedded broker could not be looked after", next_try_s=delay_s)

    def _stop(self) -> None:
        """Stop a broker that was started here."""
        try:
            if self._broker.started:
                self._broker.stop()
        except BrokerUnavailable as error:
            log.warning("the embedded broker was not stopped", error=str(error))
