"""Commands that run things: the worker, the embedded broker, the metrics exporter, the check of it all."""

from __future__ import annotations

import os
import platform
import threading

import click
import structlog

from ops.logs import configure_logging
from ops.metrics import LedgerCollector, MetricsServer, WorkerMetrics, new_registry
from ops.redaction import Redactor
from workers.assembly import build_runtime
from workers.celery_worker import run_worker
from workers.cli.context import Context, pass_context
from workers.cli.show import print_json
from workers.cli.turns import json_option
from workers.doctor import Check, examine

log = structlog.get_logger(__name__)


@click.command()
@click.option("--concurrency", "-c", type=click.IntRange(min=1), help="Turns at a time. [default: configured]")
@pass_context
def up(context: Context, concurrency: int | None) -> int:
    """Run a broker, unless one is configured or running, and a worker, until Ctrl-C."""
    embedded = context.embedded
    started = embedded.ensure() if embedded else False
    try:
        return _work(context, concurrency, with_totals=True)
    finally:
        if embedded and started:
            embedded.stop()


@click.command()
@click.option("--concurrency", "-c", type=click.IntRange(min=1), help="Turns at a time. [default: configured]")
@pass_context
def worker(context: Context, concurrency: int | None) -> int:
    """Run turns until told to stop. SIGTERM leaves running agents to the next worker."""
    return _work(context, concurrency, with_totals=False)


@click.command()
@pass_context
def down(context: Context) -> int:
    """Stop the embedded broker. Queued turns stay in its file."""
    if context.embedded is None:
        raise click.UsageError("RUNTURN_BROKER_URL names another broker; stop that one where it runs")
    click.echo("stopped" if context.embedded.stop() else "was not running")
    return 0


@click.command()
@pass_context
def exporter(context: Context) -> int:
    """Serve tokens and money from the ledger's totals at /metrics, for the whole fleet. Run one of these."""
    registry = new_registry()
    registry.register(LedgerCollector(context.ledger))
    settings = context.settings
    with MetricsServer(registry, settings.metrics_host, settings.metrics_port) as server:
        click.echo(f"metrics at {server.url}", err=True)
        threading.Event().wait()
    return 0


@click.command()
@json_option
@pass_context
def doctor(context: Context, as_json: bool) -> int:
    """Check everything a turn needs, and say what to do about what is missing."""
    checks = examine(context)
    if as_json:
        print_json(
            {"healthy": all(check.ok for check in checks), "checks": [check.document() for check in checks]}
        )
    else:
        for check in checks:
            _print_check(check)
    return 0 if all(check.ok for check in checks) else 1


COMMANDS = (up, worker, down, exporter, doctor)


def _work(context: Context, concurrency: int | None, *, with_totals: bool) -> int:
    settings, registry = context.settings, new_registry()
    configure_logging(Redactor.of_environment({**settings.secrets, **os.environ}))
    if with_totals:
        registry.register(LedgerCollector(context.ledger))
    runtime = build_runtime(settings, context.state, context.ledger, context.app, WorkerMetrics(registry))
    slots = concurrency or settings.agent.max_concurrent_agents
    with MetricsServer(registry, settings.metrics_host, settings.metrics_port) as server:
        log.info("worker starts", slots=slots, metrics=server.url, state_dir=str(context.state.root))
        return run_worker(context.app, runtime, name=f"runturn@{platform.node()}.{os.getpid()}", concurrency=slots)


def _print_check(check: Check) -> None:
    click.secho("ok  " if check.ok else "FAIL", fg="green" if check.ok else "red", nl=False)
    click.echo(f" {check.name}: {check.detail}")
    if check.remedy:
        click.echo(f"       {check.remedy}")
