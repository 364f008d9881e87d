"""Logs on stderr: for people on a terminal, JSON anywhere else.

No line leaves with a secret in it that is known here, or that looks like one. Whatever is logged while a turn is
worked on says which turn that is, whoever logs it: see `turn_logging`.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter

from ops.redaction import Redactor, without_keys

_SHARED: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
_log = structlog.get_logger(__name__)


_OURS = ("adapters", "remote", "ops", "workers")
_TALKATIVE = ("alembic", "asyncssh")  # they tell of plug-ins, of every channel
_OF_A_TURN = ("turn_id", "session_id", "host", "attempt")


def configure_logging(
    redactor: Redactor, stream: TextIO | None = None, *, level: str = "info", form: str = "auto"
) -> None:
    """Send everything that this process logs, by structlog or `logging`, to `stream` (stderr), one line an event.

    `form` is json, console, or auto: console on a terminal only. Below `info`, only runturn itself says more:
    what libraries would say may hold what is in their hands, say a message with its prompt.

    Celery must leave the root logger alone: `worker_hijack_root_logger = False`.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting(redactor, people=form == "console" or (form == "auto" and stream.isatty())))
    root = logging.getLogger()
    root.handlers = [handler]
    number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(number, logging.INFO))
    for name in _OURS:
        logging.getLogger(name).setLevel(number)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            _redacting(redactor),
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def log_uncaught() -> None:
    """Have what ends a thread, or the process, logged like everything else: a traceback may hold a secret."""

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else "?"
            _log.critical("a thread has died", thread=name, exc_info=args.exc_value)

    def of_process(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _log.critical("died of a fault of runturn's own", exc_info=error)

    threading.excepthook = of_thread
    sys.excepthook = of_process


@contextmanager
def turn_logging(turn_id: str) -> Iterator[None]:
    """Whatever is logged by this task or thread, and by those it starts, is about this turn."""
    before = structlog.contextvars.get_contextvars()
    structlog.contextvars.unbind_contextvars(*_OF_A_TURN)
    structlog.contextvars.bind_contextvars(turn_id=turn_id)
    try:
        yield
    finally:
        structlog.contextvars.unbind_contextvars(*_OF_A_TURN)
        structlog.contextvars.bind_contextvars(**before)


def attempt_logging(attempt: int, host: str, session_id: str | None) -> None:
    """From now on, and until the turn's `turn_logging` ends, it is about this attempt."""
    structlog.contextvars.bind_contextvars(attempt=attempt, host=host, session_id=session_id)


def _redacting(redactor: Redactor) -> structlog.types.Processor:
    """Redacts what runturn logs before any handler has it: an operator's may send it elsewhere."""

    def redact(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        return {k: without_keys(redactor.text(v)) if isinstance(v, str) else v for k, v in event.items()}

    return redact


class _Redacting(ProcessorFormatter):
    """Redacts the finished line, so that nothing is forgotten: not a traceback, not an argument."""

    def __init__(self, redactor: Redactor, *, people: bool) -> None:
        self._redactor = redactor
        rendering: list[Any] = (
            # plain: the default draws boxes with the values of all variables in them
            [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
            if people
            else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        )
        super().__init__(
            foreign_pre_chain=_SHARED, processors=[ProcessorFormatter.remove_processors_meta, *rendering]
        )

    def format(self, record: logging.LogRecord) -> str:
        return without_keys(self._redactor.text(super().format(record)))
