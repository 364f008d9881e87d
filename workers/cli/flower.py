"""The command `flower`: Celery's web interface."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import click

from ops.logs import configure_logging
from ops.redaction import Redactor
from workers.cli.context import Context, pass_context
from workers.cli.exit_codes import COMPLETED

_FILE = "flower-password"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", default=5555, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"File with the password. [default: {_FILE} in the state directory, created if missing]",
)
@pass_context
def flower(context: Context, host: str, port: int, password_file: Path | None) -> int:
    """Serve Flower, Celery's web interface, behind a login.

    The user is `runturn`. Anyone who logs in can start and terminate turns, and stop workers.
    """
    try:
        from workers.flower import read_password, serve  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{error.name} is missing; install runturn[flower]") from None
    file = password_file or context.state.root / _FILE
    password = read_password(file, make=password_file is None)
    configure_logging(
        Redactor.of_environment({**context.settings.secrets, **os.environ, "FLOWER_PASSWORD": password})
    )
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # logs every request, and 401s as warnings
    serve(context.app, host, port, password)
    return COMPLETED
