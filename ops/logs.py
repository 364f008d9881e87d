"""Logging to stderr: human-readable on a terminal, JSON anywhere else.

Configured secrets, and anything that looks like a secret, are redacted from every line. Every line logged while a
turn runs names the turn, whatever code logs it: see `turn_logging`.
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
_TALKATIVE = ("alembic", "asyncssh")  # they log plug-ins and every channel
_OF_A_TURN = ("turn_id", "session_id", "host", "attempt")


def configure_logging(
    redactor: Redactor, stream: TextIO | None = None, *, level: str = "info", form: str = "auto"
) -> None:
    """Send everything this process logs, through structlog or `logging`, to `stream` (stderr), one line per event.

    `form` is json, console, or auto (console on a terminal only). Levels below `info` apply to runturn alone:
    libraries would log the data they handle, such as a message with its prompt.

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
    """Log exceptions that end a thread or the process like everything else: a traceback may contain a secret."""

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread else "?"
            _log.critical("thread died", thread=name, exc_info=args.exc_value)

    def of_process(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _log.critical("runturn crashed: internal error", exc_info=error)

    threading.excepthook = of_thread
    sys.excepthook = of_process


@contextmanager
def turn_logging(turn_id: str) -> Iterator[None]:
    """Tag everything logged by this task or thread, and by those it starts, with this turn."""
    before = structlog.contextvars.get_contextvars()
    structlog.contextvars.unbind_contextvars(*_OF_A_TURN)
    structlog.contextvars.bind_contextvars(turn_id=turn_id)
    try:
        yield
    finally:
        structlog.contextvars.unbind_contextvars(*_OF_A_TURN)
        structlog.contextvars.bind_contextvars(**before)


def attempt_logging(attempt: int, host: str, session_id: str | None) -> None:
    """Tag what is logged with this attempt until the turn's `turn_logging` ends."""
    structlog.contextvars.bind_contextvars(attempt=attempt, host=host, session_id=session_id)


def _redacting(redactor: Redactor) -> structlog.types.Processor:
    """Redact what runturn logs before any handler gets it: an operator's handler may send it elsewhere."""

    def redact(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        return {k: without_keys(redactor.text(v)) if isinstance(v, str) else v for k, v in event.items()}

    return redact


class _Redacting(ProcessorFormatter):
    """Formatter that redacts the finished line, including tracebacks and arguments."""

    def __init__(self, redactor: Redactor, *, people: bool) -> None:
        self._redactor = redactor
        rendering: list[Any] = (
            # plain: the default prints the values of all variables
            [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
            if people
            else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        )
        super().__init__(
            foreign_pre_chain=_SHARED, processors=[ProcessorFormatter.remove_processors_meta, *rendering]
        )

    def format(self, record: logging.LogRecord) -> str:
        return without_keys(self._redactor.text(super().format(record)))
