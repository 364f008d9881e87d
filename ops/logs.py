"""Logs on stderr: for people on a terminal, JSON anywhere else.

No line leaves with a secret in it that is known here, or that looks like one.
"""

from __future__ import annotations

import logging
import sys
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


def configure_logging(redactor: Redactor, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send everything that this process logs, by structlog or `logging`, to `stream` (stderr), one line an event.

    Celery must leave the root logger alone: `worker_hijack_root_logger = False`.
    """
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting(redactor, people=stream.isatty()))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_SHARED, ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


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
