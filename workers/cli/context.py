"""What every command needs: settings, the broker, the ledger. Each is opened when it is first used."""

from __future__ import annotations

from functools import cached_property

import click
from celery import Celery
from kombu import Connection

from ops.ledger import Ledger
from ops.settings import Settings, load_settings
from ops.state_dir import StateDir
from workers.app import create_app
from workers.client import Client
from workers.embedded import EmbeddedBroker
from workers.errors import BrokerUnavailable, NoWorker

_PING_S = 3.0


class Context:
    """Passed to every command."""

    @cached_property
    def settings(self) -> Settings:
        """The configuration. Raises SettingsError."""
        return load_settings()

    @cached_property
    def state(self) -> StateDir:
        """The state directory, made if it was missing. Raises SettingsError."""
        return StateDir.open(self.settings.state_dir)

    @cached_property
    def embedded(self) -> EmbeddedBroker | None:
        """Our own broker, unless the configuration names another."""
        return None if self.settings.broker_url else EmbeddedBroker(self.state.broker)

    @cached_property
    def broker_url(self) -> str:
        """Where the broker listens; the embedded one is started if it was not running."""
        if self.settings.broker_url:
            return self.settings.broker_url.get_secret_value()
        assert self.embedded is not None  # noqa: S101  # there is one or the other
        self.embedded.ensure()
        return self.embedded.url

    @cached_property
    def app(self) -> Celery:
        """The Celery application. Raises BrokerUnavailable if the broker does not answer."""
        result_url = self.settings.result_url.get_secret_value() if self.settings.result_url else None
        app = create_app(self.broker_url, result_url)
        connection: Connection = app.connection_for_write(connect_timeout=5)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0.2)
        except connection.connection_errors as error:
            raise BrokerUnavailable(
                f"no broker answers at {connection.as_uri()}: {error}; start it or set RUNTURN_BROKER_URL"
            ) from error
        finally:
            connection.release()
        return app

    @cached_property
    def ledger(self) -> Ledger:
        """The books. Raises LedgerUnavailable or LedgerTooNew."""
        url = self.settings.ledger_url
        return Ledger.open(url.get_secret_value() if url else self.state.ledger_url)

    @cached_property
    def client(self) -> Client:
        """What producers use, too."""
        return Client(self.app, self.ledger)

    def require_worker(self) -> None:
        """Raises NoWorker unless a worker answers."""
        if not self.app.control.inspect(timeout=_PING_S, limit=1).ping():
            raise NoWorker("no worker is running; start one with: runturn up")


pass_context = click.make_pass_decorator(Context, ensure=True)
