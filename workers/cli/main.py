"""`runturn`: the entry point. Every error that a person can act on ends here, as one line and an exit status."""

from __future__ import annotations

import gc
import io
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
    """Commands that live in one module, with a line on each for `runturn --help`."""

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
            "watch": "Show a turn's events, past and to come, until it ends.",
            "result": "Wait for a turn's result and print it.",
            "cancel": "End a turn and its agent.",
        },
    ),
    Section(
        "Turns that run",
        "workers.cli.control",
        {
            "interrupt": "Have an agent stop what it is doing, and end its turn.",
            "send": "Send a message to an agent while it works.",
            "answer": "Answer an agent that asks whether it may use a tool.",
            "control": "Change how an agent works on, or ask it about itself.",
        },
    ),
    Section("Sessions", "workers.cli.session", {"session": "Repeat turns in one agent session until tests pass."}),
    Section("Live", "workers.cli.top", {"top": "Show what runs, waits and costs, until q or Ctrl-C."}),
    Section(
        "Books",
        "workers.cli.history",
        {
            "history": "List turns, the newest first.",
            "cost": "Show what turns have used and cost.",
        },
    ),
    Section("Budgets", "workers.cli.budgets", {"budget": "Limit what turns with a label may cost."}),
    Section(
        "Fleet",
        "workers.cli.worker",
        {
            "up": "Run a broker and a worker here, until Ctrl-C.",
            "worker": "Run turns until told to stop.",
            "down": "Stop the embedded broker.",
            "exporter": "Serve the whole fleet's tokens and money at /metrics.",
            "doctor": "Check everything that a turn needs.",
        },
    ),
    Section("Agents", "workers.cli.agents", {"agents": "Show the agents there are, host by host."}),
    Section("Flower", "workers.cli.flower", {"flower": "Serve Flower, Celery's web page, behind a login."}),
    Section(
        "Dead letters", "workers.cli.dead_letters", {"dead": "Look after messages that no worker could read."}
    ),
    Section(
        "Transcripts",
        "workers.cli.transcript",
        {"transcript": "Show what a turn did and wrote to stderr, from the archive."},
    ),
    Section("Recordings", "workers.cli.replay", {"replay": "Fold a recording into a result."}),
)


class Commands(click.Group):
    """The commands of `SECTIONS`."""

    def list_commands(self, _: click.Context) -> list[str]:
        """All names, in the order of the help."""
        return [name for section in SECTIONS for name in section.commands]

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """The command of that name."""
        for section in SECTIONS:
            if name in section.commands:
                command: click.Command = getattr(_import(section.module), name)
                return command
        return None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click has it, which knows near names of options only."""
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
    """Import a module without looking for garbage meanwhile: there is none, and it takes a sixth of the time."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.enable()


def _aligned(commands: dict[str, str]) -> Iterator[tuple[str, str]]:
    width = max(len(name) for section in SECTIONS for name in section.commands)
    return ((name.ljust(width), summary) for name, summary in commands.items())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="runturn")
def cli() -> None:
    """Run coding-agent turns from a queue, and book every token exactly once.

    Start with `runturn up` in one terminal and `runturn run "what is in here?"` in another.

    Exit status: 0 completed, 1 the turn failed, 2 bad input, 3 no broker, ledger or worker,
    130 interrupted.
    """


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # agents write what a terminal's encoding may not have
    status = run(sys.argv[1:])
    # Ctrl-C amid an exec() of text, as dataclasses and named tuples are made by, has `python -m` die of SIGINT on
    # its way out although it was caught; the next exec() clears that mark (CPython, Modules/main.c, exit_sigint).
    exec("")  # noqa: S102
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status."""
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
        # Nobody reads on, as in `runturn history | head`; the interpreter must not try again on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED  # as click has it where it notices by itself


def _status(error: TurnError | OpsError | RunturnError) -> int:
    if isinstance(error, ControlFailed):
        return FAILED
    no_service = isinstance(error, LedgerUnavailable | ArchiveUnavailable | RunturnError)
    return NO_SERVICE if no_service and not isinstance(error, ControlRefused) else BAD_INPUT


def _explain(error: click.ClickException) -> None:
    """One line, where click itself prints four; only `runturn` alone gets the whole help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    elif isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
        message = " ".join(error.format_message().split())  # click lists choices one a line
        click.echo(f"{path}: {message} (see {path} --help)", err=True)
    else:
        click.echo(f"runturn: {error.format_message()}", err=True)


if __name__ == "__main__":
    main()
