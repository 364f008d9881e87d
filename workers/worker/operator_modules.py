"""An operator's own modules in a worker: signal handlers, instrumentation, tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from celery import Celery

from ops.errors import SettingsError


def include(app: Celery, modules: Iterable[str], redact: Callable[[str], str]) -> None:
    """Import the modules with the application as Celery's current one. Raises SettingsError.

    Tasks that they define with `shared_task` or `current_app` thereby belong to this worker. `redact` removes
    secrets from import errors.
    """
    app.set_default()
    for name in modules:
        app.set_current()  # a module may create an application, which then becomes the current one
        try:
            import_module(name)
        except Exception as error:
            why = redact(f"{type(error).__name__}: {error}")
            raise SettingsError(f"{name} cannot be imported: {why}", field="include") from error
