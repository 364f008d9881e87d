"""The Celery application of an installation, created from its settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click
from celery import Celery
from celery.exceptions import ImproperlyConfigured

from ops.errors import SettingsError
from ops.settings import Settings, load_settings
from ops.settings.state_dir import StateDir
from workers import celery_command
from workers.app import create_app
from workers.brokers import redis_transport
from workers.brokers.embedded import EmbeddedBroker
from workers.brokers.settings import results_url
from workers.celery_command import BAD_INPUT

_MEANINGLESS = (ImproperlyConfigured, KeyError, ValueError, ImportError, AttributeError)  # raised for invalid URLs
# Celery reads these itself, and they override the application's settings.
_BROKERS = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
_RESULTS = ("CELERY_RESULT_BACKEND",)


def configured_app(settings: Settings, broker_url: str) -> Celery:
    """Return the application for that broker, not connected. Raise SettingsError naming an invalid setting."""
    result_url = settings.result_url.get_secret_value() if settings.result_url else None
    _refuse_others("broker_url", broker_url, _BROKERS)
    _refuse_others("result_url", results_url(broker_url, result_url), _RESULTS)
    try:
        if "://" not in broker_url:  # kombu would take it for the host of a RabbitMQ
            raise ValueError("it has no scheme")
        app = create_app(broker_url, result_url, settings.queues)
        app.conf.include = settings.include
        app.connection_for_write().transport_cls  # noqa: B018  # the lookup checks it
    except _MEANINGLESS as error:
        raise SettingsError(
            f"names no broker that this installation supports ({error}); use redis://HOST:PORT/0 or "
            "amqp://USER:PASSWORD@HOST/VHOST",
            field="broker_url",
            where="RUNTURN_BROKER_URL",
        ) from error
    try:
        app.backend  # noqa: B018  # as above
    except _MEANINGLESS as error:
        raise SettingsError(
            f"cannot store results ({error}); use redis://HOST:PORT/0, for example",
            field="result_url",
            where="RUNTURN_RESULT_URL",
        ) from error
    return app


def installed_app() -> Celery:
    """Return the configured application as Celery's current one. Do not start the embedded broker.

    Raise SettingsError if a setting is invalid. Under Celery's own command, which would show a traceback, print
    one line and exit instead.
    """
    try:
        settings = load_settings()
        given, own = settings.broker_url, EmbeddedBroker(StateDir(settings.state_dir).broker)
        app = configured_app(settings, given.get_secret_value() if given else own.url)
    except SettingsError as error:
        if celery_command.running():
            click.echo(f"Error: {error}", err=True)
            sys.exit(BAD_INPUT)
        raise
    app.set_default()
    redis_transport.install()  # a killed `celery events` would stay in the broker's table of bindings
    return app


def _refuse_others(field: str, url: str, variables: Iterable[str]) -> None:
    for name in variables:
        if os.environ.get(name, url) not in (url, ""):
            raise SettingsError(
                f"Celery would use it instead of RUNTURN_{field.upper()}; unset it", field=field, where=name
            )
