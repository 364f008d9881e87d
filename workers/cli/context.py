"""Resources of commands: settings, broker, ledger. Each is opened on first use."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from functools import cached_property, partial
from typing import TypeVar

import click
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError

from adapters.errors import InvalidRequest
from adapters.registry import Registry
from adapters.usage import Tokens
from ops.errors import LedgerUnavailable, UnknownTurn
from ops.ledger import Ledger
from ops.redaction import Redactor
from ops.settings import Settings, load_settings, secret_files
from ops.settings.state_dir import StateDir
from remote.daemon_threads import DaemonExecutor
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
# A command has an answer within 10 s, whatever does not answer itself.
_CONNECT_S = 4.0
_PING_S = 5.0
_LATE_S = 1.0
_ANSWER_S = 4.0  # for the ledger
_LEDGER_S = 5.0  # to open it; what took too long by its own account has a reason to tell
_UPGRADE_S = 1800.0  # for a service to open it, and to upgrade a large one

_T = TypeVar("_T")
_Command = TypeVar("_Command", bound=Callable[..., object])


class Context:
    """Resources of one command."""

    # What there is to say once they did not answer: a command does not wait twice.
    _broker_fault: BrokerUnavailable | None = None
    _ledger_fault: LedgerUnavailable | None = None

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
        if self._broker_fault is None:
            try:
                return self._answering()
            except BrokerUnavailable as error:
                self._broker_fault = error
        raise self._broker_fault

    @cached_property
    def quiet_app(self) -> Celery:
        """Return the same, whether the broker answers or not: it neither starts one nor connects to it."""
        broker = self.settings.broker_url
        if broker is not None:
            return configured_app(self.settings, broker.get_secret_value())
        assert self.embedded is not None  # noqa: S101  # None only if broker_url is set
        return configured_app(self.settings, self.embedded.url)

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger. Raise LedgerUnavailable or LedgerTooNew within seconds."""
        if self._ledger_fault is None:
            try:
                return self._open_ledger(_ANSWER_S, _LEDGER_S)
            except LedgerUnavailable as error:
                self._ledger_fault = error
        raise self._ledger_fault

    def serve(self) -> None:
        """Have a ledger for a service, which may upgrade it, and whose operations may take longer.

        Raise what `ledger` does: a ledger that does not answer is still named within seconds.
        """
        self._open_ledger(_ANSWER_S, _UPGRADE_S).close()
        self.ledger = self._open_ledger(None, _UPGRADE_S)

    def _open_ledger(self, patience_s: float | None, within_s: float) -> Ledger:
        given = self.settings.ledger_url
        url = given.get_secret_value() if given else self.state.ledger_url
        silent = LedgerUnavailable(
            f"ledger {Ledger.name_of(url)}: no answer within {within_s:.0f} s; "
            "find out what its server or disk is waiting for, or correct RUNTURN_LEDGER_URL"
        )
        return _within(within_s, partial(Ledger.open, url, patience_s), silent)

    @cached_property
    def client(self) -> Client:
        """Return the client that producers use. Raise what `app` does."""
        return Client(self.app, self.ledger)

    @cached_property
    def reader(self) -> Client:
        """Return a client for what is in the ledger; without a broker, live events come from there, too."""
        return Client(self.quiet_app, self.ledger)

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
            if not self._worker_answers():
                click.echo("no worker answers; the turn waits for one. Start one with: runturn up", err=True)
        except BrokerUnavailable as error:
            click.echo(f"{error}. Until then, this shows what the ledger has", err=True)

    def _worker_answers(self) -> bool:
        """Return whether a worker answers. Do not start a broker for this: a stopped one has no workers.

        Raise BrokerUnavailable.
        """
        if self.embedded is not None and not self.embedded.running():
            return False
        silent = BrokerUnavailable("the broker has stopped answering; see: runturn doctor")
        try:
            return bool(_within(_PING_S + _LATE_S, partial(roll_call, self.app, _PING_S, limit=1), silent))
        except (OperationalError, OSError) as error:
            raise BrokerUnavailable(f"the broker did not pass on a question to the workers: {error}") from error

    def price(self, agent: str, model: str, tokens: Tokens) -> float | None:
        """Return the cost of an agent's tokens in US dollars; None if unknown."""
        try:
            return self.registry.get(agent).price(model, tokens)
        except InvalidRequest:  # an agent of another installation that shares the ledger
            return None

    def waits_for(self, turn_id: str) -> Callable[[], str | None]:
        """Return a function that explains why a turn waits; see `workers.cli.wait_reason`."""
        return lambda: reason_to_wait(self.ledger, turn_id, self.ledger.clock.read())

    def _answering(self) -> Celery:
        """Return the application once its broker has answered. Raise what `app` does."""
        if self.embedded is not None:
            self.embedded.ensure()
            return self.quiet_app
        connection: Connection = self.quiet_app.connection_for_write(connect_timeout=_CONNECT_S)
        where, advice = connection.as_uri(), "start it or correct RUNTURN_BROKER_URL"
        silent = BrokerUnavailable(f"no broker answers at {where}: it was silent for {_CONNECT_S:.0f} s; {advice}")
        connect = partial(connection.ensure_connection, max_retries=1, interval_start=0.2, timeout=_CONNECT_S)
        try:
            _within(_CONNECT_S, connect, silent)
        except (OperationalError, *connection_errors(connection)) as error:
            raise BrokerUnavailable(f"no broker answers at {where}: {str(error).rstrip('.')}; {advice}") from error
        connection.release()
        return self.quiet_app


def _within(limit_s: float, call: Callable[[], _T], silent: Exception) -> _T:
    """Return the result of a call; raise `silent` if there is none in time. It then goes on in its own thread."""
    calling = DaemonExecutor().submit(call)
    if not wait([calling], limit_s).done:
        raise silent
    return calling.result()


pass_context = click.make_pass_decorator(Context, ensure=True)


def turn_argument(*, single: bool = False, to_read: bool = False) -> Callable[[_Command], _Command]:
    """Add an argument that names a turn, or a session of turns unless `single`; see `Context.turn_id`."""

    def find(context: click.Context, _: click.Parameter, given: str) -> str:
        found = context.ensure_object(Context)
        return (found.single_turn_id if single else found.turn_id)(given, to_read=to_read)

    return click.argument("turn_id", callback=find)
