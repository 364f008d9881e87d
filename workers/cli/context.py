"""Resources of commands: settings, broker, ledger. Each is opened on first use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import click
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from adapters.errors import InvalidRequest
from adapters.registry import Registry
from adapters.usage import Tokens
from ops.errors import UnknownTurn
from ops.ledger import Ledger
from ops.redaction import Redactor
from ops.settings import Settings, load_settings, secret_files
from ops.settings.state_dir import StateDir
from workers.agents.registry import build_registry
from workers.brokers.embedded import EmbeddedBroker
from workers.brokers.ping import roll_call
from workers.brokers.settings import connection_errors
from workers.cli.wait_reason import reason_to_wait
from workers.client.sync import Client
from workers.configured_app import configured_app
from workers.errors import BrokerUnavailable, NoWorker
from workers.redacted_request import beginning

_LEAST = 4  # characters of an id
_GENERATED = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}(\.\d+)?\Z")  # by runturn or Celery
_LISTED = 5  # ids that a shortened one may stand for
_CONNECT_S = 4.0
_PING_S = 5.0

_Command = TypeVar("_Command", bound=Callable[..., object])


class Context:
    """Resources of one command."""

    @cached_property
    def settings(self) -> Settings:
        """Return the configuration. Raise SettingsError if it is invalid."""
        return load_settings()

    @cached_property
    def registry(self) -> Registry:
        """Return the configured agents. Raise SettingsError if one is invalid."""
        return build_registry(self.settings)

    @cached_property
    def state(self) -> StateDir:
        """Return the state directory, creating it if missing. Raise SettingsError if it cannot be written."""
        return StateDir.open(self.settings.state_dir)

    @cached_property
    def embedded(self) -> EmbeddedBroker | None:
        """Return the embedded broker; None if the configuration names another."""
        return None if self.settings.broker_url else EmbeddedBroker(self.state.broker)

    @cached_property
    def app(self) -> Celery:
        """Return the Celery application, starting the embedded broker if it is not running.

        Raise BrokerUnavailable if the broker does not answer, SettingsError if its URL is invalid.
        """
        broker = self.settings.broker_url
        app = configured_app(self.settings, broker.get_secret_value() if broker else self._started().url)
        connection: Connection = app.connection_for_write(connect_timeout=_CONNECT_S)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0.2, timeout=_CONNECT_S)
        except (OperationalError, *connection_errors(connection)) as error:
            raise BrokerUnavailable(
                f"no broker answers at {connection.as_uri()}: {str(error).rstrip('.')}; "
                "start it or correct RUNTURN_BROKER_URL"
            ) from error
        finally:
            connection.release()
        return app

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger. Raise LedgerUnavailable or LedgerTooNew."""
        url = self.settings.ledger_url
        return Ledger.open(url.get_secret_value() if url else self.state.ledger_url)

    @cached_property
    def client(self) -> Client:
        """Return the client that producers use."""
        return Client(self.app, self.ledger)

    @cached_property
    def redactor(self) -> Redactor:
        """Return the redactor of the secrets known here. Raise SettingsError if a secret file is unusable."""
        return Redactor.of_environment({
            **self.settings.secrets, **secret_files.variables(os.environ), **os.environ
        })  # fmt: skip

    def beginnings(self, turn_ids: Sequence[str]) -> dict[str, str]:
        """Return the beginnings of these turns' prompts, redacted; those removed since are missing."""
        prompts = self.ledger.reports.prompts(turn_ids)
        return {turn_id: beginning(prompt, self.redactor) for turn_id, prompt in prompts.items()}

    def turn_id(self, given: str, *, to_read: bool = False) -> str:
        """Return the id of the one turn, or session of turns, that starts with the text. An equal id always wins.

        Return the text itself if none does. Raise UsageError if several do. Unless `to_read`, the text stands only
        for a generated id: issue-1, which may be gone, must not cancel issue-10.
        """
        try:
            given.encode()
        except UnicodeEncodeError:  # bytes of an argument that are not UTF-8
            raise UnknownTurn(ascii(given)) from None
        found = self.ledger.reports.starting_with(given, _LISTED + 1)
        if given in found or not found:
            return given
        if len(given) < _LEAST:
            raise click.UsageError(f"{given!r} is too short: give at least {_LEAST} characters of the id")
        if len(found) > 1:
            listed = ", ".join(found[:_LISTED]) + (", …" if len(found) > _LISTED else "")
            raise click.UsageError(f"several turns start with {given!r}: {listed}; give more characters")
        if not to_read and _GENERATED.match(found[0]) is None:
            raise click.UsageError(f"there is no turn {given}; if you mean {found[0]}, give its whole id")
        return found[0]

    def single_turn_id(self, given: str, *, to_read: bool = False) -> str:
        """Return the same, but the current or last turn of a session of turns."""
        turn_id = self.turn_id(given, to_read=to_read)
        session = self.ledger.session_runs.find(turn_id)
        return turn_id if session is None else session.turn or turn_id

    def require_worker(self) -> None:
        """Raise NoWorker unless a worker answers."""
        if not self._worker_answers():
            raise NoWorker("no worker is running; start one with: runturn up")

    def warn_without_worker(self) -> None:
        """Warn on stderr unless a worker answers. The turn itself is already in the ledger."""
        try:
            answers = self._worker_answers()
        except (BrokerUnavailable, OperationalError, OSError):
            answers = False
        if not answers:
            click.echo("no worker answers; the turn waits for one. Start one with: runturn up", err=True)

    def _worker_answers(self) -> bool:
        """Return True if a worker answers. Do not start a broker for this: a stopped one has no workers."""
        if self.embedded is not None and not self.embedded.running():
            return False
        return bool(roll_call(self.app, _PING_S, limit=1))

    def price(self, agent: str, model: str, tokens: Tokens) -> float | None:
        """Return the cost of an agent's tokens in US dollars; None if unknown."""
        try:
            return self.registry.get(agent).price(model, tokens)
        except InvalidRequest:  # an agent of another installation that shares the ledger
            return None

    def waits_for(self, turn_id: str) -> Callable[[], str | None]:
        """Return a function that explains why a turn waits; see `workers.cli.wait_reason`."""
        return lambda: reason_to_wait(self.ledger, turn_id, self.ledger.clock.read())

    def _started(self) -> EmbeddedBroker:
        assert self.embedded is not None  # noqa: S101  # None only if broker_url is set
        self.embedded.ensure()
        return self.embedded


pass_context = click.make_pass_decorator(Context, ensure=True)


def turn_argument(*, single: bool = False, to_read: bool = False) -> Callable[[_Command], _Command]:
    """Add an argument that names a turn, or a session of turns unless `single`; see `Context.turn_id`."""

    def find(context: click.Context, _: click.Parameter, given: str) -> str:
        found = context.ensure_object(Context)
        return (found.single_turn_id if single else found.turn_id)(given, to_read=to_read)

    return click.argument("turn_id", callback=find)
