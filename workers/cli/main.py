"""The command line of `runturn`. Reports every error that a user can act on in one line and an exit status."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import click

from adapters.errors import TurnError
from adapters.suggestions import meant
from ops.errors import ArchiveUnavailable, LedgerUnavailable, OpsError
from workers.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED, NO_SERVICE
from workers.errors import ControlFailed, ControlRefused, RunturnError


class Section(NamedTuple):
    """Commands of one module, each with its line in `runturn --help`."""

    title: str
    module: str
    commands: dict[str, str]


# The modules are imported when one of their commands runs: Celery and SQLAlchemy alone take half a second.
SECTIONS = (
    Section(
        "Turns",
        "workers.cli.turns",
        {
            "run": "Queue a turn, show it live, and wait for its result.",
            "enqueue": "Queue a turn and print its id.",
            "watch": "Show a turn's events, past and future, until it ends.",
            "result": "Wait for a turn's result and print it.",
            "cancel": "Cancel a turn and terminate its agent.",
        },
    ),
    Section(
        "Running turns",
        "workers.cli.control",
        {
            "interrupt": "Interrupt an agent and end its turn.",
            "send": "Send a message to a running agent.",
            "answer": "Answer an agent's request to use a tool.",
            "control": "Reconfigure or inspect a running agent.",
        },
    ),
    Section("Sessions", "workers.cli.session", {"session": "Repeat turns in one agent session until tests pass."}),
    Section("Live", "workers.cli.top", {"top": "Show running turns, the queue and spending, until q or Ctrl-C."}),
    Section(
        "Ledger",
        "workers.cli.history",
        {
            "history": "List turns, newest first.",
            "cost": "Show token usage and cost.",
        },
    ),
    Section("Budgets", "workers.cli.budgets", {"budget": "Limit what turns with a given label may cost."}),
    Section(
        "Fleet",
        "workers.cli.worker",
        {
            "up": "Run a broker and a worker here, until Ctrl-C.",
            "worker": "Run turns until stopped.",
            "down": "Stop the embedded broker.",
            "exporter": "Serve the whole fleet's tokens and costs at /metrics.",
            "doctor": "Check everything a turn needs.",
        },
    ),
    Section("Agents", "workers.cli.agents", {"agents": "Show the agents on each host."}),
    Section("Flower", "workers.cli.flower", {"flower": "Serve Flower, Celery's web interface, behind a login."}),
    Section("Dead letters", "workers.cli.dead_letters", {"dead": "Manage messages that no worker could read."}),
    Section(
        "Transcripts",
        "workers.cli.transcript",
        {"transcript": "Show a turn's archived events and stderr."},
    ),
    Section("Recordings", "workers.cli.replay", {"replay": "Compute a result from a recording."}),
)


class Commands(click.Group):
    """Command group of `SECTIONS`."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return all names in the order of the help."""
        return [name for section in SECTIONS for name in section.commands]

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Return the command of that name."""
        for section in SECTIONS:
            if name in section.commands:
                command: click.Command = getattr(_import(section.module), name)
                return command
        return None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command, suggesting similar names, which click does for options only."""
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError as error:
            near = meant(arguments[0], self.list_commands(context))
            raise click.UsageError(error.message.rstrip(".") + near, context) from error

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section, without importing them."""
        for section in SECTIONS:
            with formatter.section(section.title):
                formatter.write_dl(list(_aligned(section.commands)))


def _import(name: str) -> ModuleType:
    """Import a module, and keep the garbage collector from it: looking there takes a third of the time."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _aligned(commands: dict[str, str]) -> Iterator[tuple[str, str]]:
    width = max(len(name) for section in SECTIONS for name in section.commands)
    return ((name.ljust(width), summary) for name, summary in commands.items())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="runturn")
def cli() -> None:
    """Run coding-agent turns from a queue and book every token exactly once.

    Start with `runturn up` in one terminal and `runturn run "what is in here?"` in another.

    Exit status: 0 completed, 1 the turn failed, 2 bad input, 3 no broker, ledger or worker,
    130 interrupted.
    """


def run(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    try:
        status = cli.main(arguments, prog_name="runturn", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        _explain(error)
        return BAD_INPUT
    except (TurnError, OpsError, RunturnError) as error:
        click.echo(f"runturn: {error}", err=True)
        return _status(error)
    except BrokenPipeError:
        # The reader has closed the pipe, as in `runturn history | head`; the interpreter must not flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED  # as click returns when it notices by itself


def _status(error: TurnError | OpsError | RunturnError) -> int:
    if isinstance(error, ControlFailed):
        return FAILED
    no_service = isinstance(error, LedgerUnavailable | ArchiveUnavailable | RunturnError)
    return NO_SERVICE if no_service and not isinstance(error, ControlRefused) else BAD_INPUT


def _explain(error: click.ClickException) -> None:
    """Print one line where click prints four; print the whole help only for `runturn` alone."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
        message = " ".join(error.format_message().split())  # click lists choices one per line
        click.echo(f"{path}: {message} (see {path} --help)", err=True)
    else:
        click.echo(f"runturn: {error.format_message()}", err=True)
