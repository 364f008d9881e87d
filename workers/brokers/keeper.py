"""The keeper of `runturn up`'s embedded broker: it restarts a broker that has died, with its data."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

import structlog

from workers.brokers.embedded import BrokerLoading
from workers.errors import BrokerUnavailable

_LOOK_S = 1.0
_FROZEN_S = 5.0  # between looks at a broker that does not answer
_MAX_PAUSE_S = 60.0  # between two tries
_STABLE_S = 120.0  # so long after the last try, a death counts as the first
_CLOSE_S = 12.0  # a start takes 8 s at most, and an answer 4 s

log = structlog.get_logger(__name__)


class Broker(Protocol):
    """See `workers.brokers.embedded.EmbeddedBroker`."""

    @property
    def started(self) -> bool:
        """Whether this object started it."""

    @property
    def told_to_stop(self) -> bool:
        """Whether it was stopped on purpose."""

    def running(self) -> bool:
        """Return whether it runs. Raises BrokerUnavailable."""

    def ensure(self) -> bool:
        """Start it. Raises BrokerUnavailable, and BrokerLoading while it reads its data."""

    def stop(self) -> bool:
        """Stop it. Raises BrokerUnavailable."""


class BrokerKeeper:
    """Has the broker running while it is entered. On exit, stops it if it was started here."""

    def __init__(self, broker: Broker, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._monotonic = monotonic
        self._deaths = 0
        self._tried_at = 0.0
        self._noted = ""  # what keeps the broker from being used, as it was logged
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-keeper", daemon=True)

    def __enter__(self) -> Self:
        try:
            while not self._started():
                continue
            self._thread.start()
        except BrokerUnavailable:  # it may only be slow: the next `up` finds it
            raise
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
        """Restart the broker if it has died. Return the seconds until the next look, more if that fails."""
        try:
            if self._broker.running():
                self._note("")
                return _LOOK_S
            if self._broker.told_to_stop:
                self._note("it was stopped by `runturn down` or another `runturn up`; start it with: runturn up")
                return _LOOK_S
        except BrokerUnavailable as error:  # frozen: only people know whether to end it
            self._note(str(error))
            return _FROZEN_S
        delay_s = self._later()
        log.error("the embedded broker has died and is restarted", next_try_s=delay_s)
        try:
            if not self._started():
                return _LOOK_S
        except BrokerUnavailable as error:
            log.error(  # noqa: TRY400  # likewise
                "the embedded broker could not be started", error=str(error), next_try_s=delay_s
            )
        else:
            log.info("the embedded broker is running again, with its data")
        return delay_s

    def _started(self) -> bool:
        """Start the broker; return whether it has read its data. Raises BrokerUnavailable."""
        try:
            self._broker.ensure()
        except BrokerLoading:
            log.info("the embedded broker is reading its data")
            return False
        return True

    def _note(self, problem: str) -> None:
        """Log what keeps the broker from being used, once."""
        if problem and problem != self._noted:
            log.error("the embedded broker cannot be used", error=problem)
        elif self._noted and not problem:
            log.info("the embedded broker can be used again")
        self._noted = problem

    def _later(self) -> float:
        now = self._monotonic()
        self._deaths = 1 if now - self._tried_at > _STABLE_S else self._deaths + 1
        self._tried_at = now
        return min(_LOOK_S * 2.0 ** (self._deaths - 1), _MAX_PAUSE_S)

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
