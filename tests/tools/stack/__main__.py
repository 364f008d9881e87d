"""`make stack`: start everything, run some turns, and show where to look, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import threading
import time
from pathlib import Path

import click

from tests.support.waiting import until
from tests.tools.demo.stage import Interrupts
from tests.tools.stack import turns
from tests.tools.stack.stack import Stack, needed
from workers.flower import USER

_SHOWN = ("RUNTURN_SECRETS_DIR", "RUNTURN_CONFIG", "RUNTURN_STATE_DIR", "RUNTURN_TRANSCRIPTS_URL")


def main() -> int:
    """Run the stack; return exit status 0 if it ran."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.stack", description=__doc__)
    parser.add_argument("--turns", type=int, default=12, help="number of turns to queue at the start")
    parser.add_argument("--once", action="store_true", help="exit when these turns have finished")
    arguments = parser.parse_args()
    if packages := needed():
        click.echo(f"stack: not installed: {', '.join(packages)} (names of Debian packages)", err=True)
        return 1
    try:
        _play(arguments.turns, once=arguments.once)
    except KeyboardInterrupt:
        pass
    except (AssertionError, RuntimeError) as error:
        click.echo(f"stack: {error}", err=True)
        return 1
    click.echo("everything has stopped")
    return 0


def _play(count: int, *, once: bool) -> None:
    began, interrupts = time.monotonic(), Interrupts()
    with contextlib.ExitStack() as ends:
        with interrupts.deferred():  # for a few seconds; no process may get lost
            stack = ends.enter_context(Stack())
            ends.callback(click.echo, "\nstopping")
            ends.callback(interrupts.ignore)
        _show(stack, count, time.monotonic() - began)
        _run(stack, count, once=once)


def _run(stack: Stack, count: int, *, once: bool) -> None:
    ids = turns.queue(stack, count)
    client = turns.client_of(stack)
    for turn_id in ids:
        client.result(turn_id, 600)

    def scraped() -> bool:
        found = stack.prometheus.query("sum(runturn_settled_turns_total)")
        return bool(found) and found[0][1] >= count and "RunturnNoWorker" not in stack.prometheus.alerts()

    until(scraped, "Prometheus to have seen the workers and all turns")
    click.secho(
        f"\n{count} turns have finished, and Prometheus has their data. Ctrl-C stops everything.", fg="green"
    )
    if not once:
        threading.Event().wait()


def _show(stack: Stack, count: int, took_s: float) -> None:
    urls = stack.urls
    click.secho(f"\nThe stack is running after {took_s:.0f} s.", fg="green", bold=True)
    click.echo(f"  Prometheus  {urls['prometheus']}/alerts   targets: {urls['prometheus']}/targets")
    click.echo(f"  Flower      {urls['flower']}   user {USER}, password in {stack.secrets / 'flower_password'}")
    for name in ("worker1", "worker2", "exporter"):
        click.echo(f"  {name:<11} {urls[name]}/metrics")
    click.echo(f"  logs        {stack.logs}")
    click.echo("Grafana is not included: Debian does not package it. compose.yaml includes it, with ops/grafana.")
    click.echo(f"\n{count} recorded turns are queued. In another terminal:")
    variables = stack.root / "variables"
    variables.write_text("".join(f"export {name}={shlex.quote(stack.environment[name])}\n" for name in _SHOWN))
    click.echo(f"  source {shlex.quote(str(variables))}")
    runturn = Path(sys.executable).with_name("runturn")
    program = shlex.quote(str(runturn.relative_to(Path.cwd()) if runturn.is_relative_to(Path.cwd()) else runturn))
    words = ["-C", stack.workspace, "--agent", "scripted", "-o", f"recording={turns.recording('c_subagent')}"]
    replay = shlex.join(map(str, words))
    for command in ("top", "history", "cost --by label", f'run "once more" {replay}'):
        click.echo(f"  {program} {command}")


if __name__ == "__main__":
    sys.exit(main())
