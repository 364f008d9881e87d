"""Celery's own command, such as `celery -A workers.app inspect active`, without subcommands that harm turns.

Most of it works. Subcommands that would discard turns, or do nothing for them, are refused before they start, with
the command to use instead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

import click
from celery import Celery
from celery.exceptions import CeleryCommandException

BAD_INPUT: Final = 2  # exit status

REFUSED: Final = {
    "amqp": "turns wait in the ledger, not in the broker; use: runturn history, runturn dead list",
    "flower": "this Flower would have no login; use: runturn flower",
    "logtool": "runturn logs one JSON object per line, which logtool cannot read; use: jq",
    "migrate": "turns are in the ledger, which it does not migrate; keep a `runturn worker` on the old broker "
    "until its queues are empty",
    "multi": "it starts Celery's own workers, which would discard turns; use: runturn worker",
    "purge": "it would delete turns; use: runturn cancel ID, or runturn dead remove ID",
    "worker": "Celery's own worker would discard turns; use: runturn worker",
}
_NO_RESULTS = "this broker keeps no results, and RUNTURN_RESULT_URL is not set; use: runturn result ID"


def running() -> click.Group | None:
    """Return Celery's command if this process runs it and it is still looking for its application."""
    program = sys.modules.get("celery.bin.celery")
    context = click.get_current_context(silent=True)
    if program is None or context is None or context.command is not program.celery:
        return None
    return context.command if isinstance(context.command, click.Group) else None


def guard(app: Celery, *, has_results: bool) -> None:
    """Make Celery's command, if this process runs it, refuse what this application does not support."""
    group = running()
    if group is not None:
        for name, reason in (REFUSED if has_results else {**REFUSED, "result": _NO_RESULTS}).items():
            if name in group.commands:  # Flower may not be installed
                command = group.commands[name]
                command.callback = _guarded(command.callback, app, reason)


def refuse_consumer(*_: Any, **__: Any) -> NoReturn:
    """Raise CeleryCommandException in place of a worker's consumer, if one is created without Celery's command."""
    raise CeleryCommandException(REFUSED["worker"], BAD_INPUT)


def _guarded(run: Callable[..., Any] | None, app: Celery, reason: str) -> Callable[..., Any]:
    assert run is not None  # noqa: S101  # every subcommand has a callback

    @functools.wraps(run)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if click.get_current_context().obj.app is app:  # the command may run for another application
            raise CeleryCommandException(reason, BAD_INPUT)
        return run(*args, **kwargs)

    return guarded
