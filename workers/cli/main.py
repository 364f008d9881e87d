"""`runturn`: the entry point. Every error that a person can act on ends here, as one line and an exit status."""

from __future__ import annotations

import sys

import click

from adapters.errors import TurnError
from ops.errors import LedgerUnavailable, OpsError
from workers.cli import books, fleet, turns
from workers.cli.replay import replay
from workers.cli.show import BAD_INPUT, INTERRUPTED, NO_SERVICE
from workers.errors import RunturnError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="runturn")
def cli() -> None:
    """Run coding-agent turns from a queue, and book every token exactly once.

    Exit status: 0 completed, 1 the turn failed, 2 bad input, 3 no broker or worker, 130 interrupted.
    """


for command in (*turns.COMMANDS, *books.COMMANDS, *fleet.COMMANDS, replay):
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        status = cli.main(arguments, prog_name="runturn", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return BAD_INPUT
    except (TurnError, OpsError, RunturnError) as error:
        click.echo(f"runturn: {error}", err=True)
        return NO_SERVICE if isinstance(error, LedgerUnavailable | RunturnError) else BAD_INPUT


if __name__ == "__main__":
    main()
