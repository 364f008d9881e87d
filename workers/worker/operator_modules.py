"""An operator's own modules in a worker: signal handlers, instrumentation, tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from celery import Celery

from ops.errors import SettingsError


def include(app: Celery, modules: Iterable[str], redact: Callable[[str], str]) -> None:
    """Import the modules, with the application as Celery's current one. Raises SettingsError.

    So what they define with `shared_task` or `current_app` are tasks of this worker. `redact` removes secrets from
    what an import has failed with.
    """
    app.set_default()
    for name in modules:
        app.set_current()  # a module may make an application of its own, which becomes the current one
        try:
            import_module(name)
        except Exception as error:
            why = redact(f"{type(error).__name__}: {error}")
            raise SettingsError(f"{name} cannot be imported: {why}", field="include") from error
