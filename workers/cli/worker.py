"""Commands for the worker, the embedded broker and the metrics exporter, and a check of all of them."""

from __future__ import annotations

import logging
import os
import platform
import re
import threading
from contextlib import nullcontext

import click
import structlog

from ops.health import Dependency, Health
from ops.logs import configure_logging, log_uncaught
from ops.metrics import Dependencies, LedgerCollector, Vocabulary, new_registry
from ops.redaction import Redactor
from ops.settings import Settings, secret_files
from ops.status_server import StatusServer
from workers.brokers.health import BrokerProbe
from workers.brokers.keeper import BrokerKeeper
from workers.brokers.ping import NODES
from workers.cli.context import Context, pass_context
from workers.cli.exit_codes import COMPLETED, FAILED
from workers.cli.options import json_option
from workers.cli.output import print_json, print_mark, printable
from workers.doctor.check import Check
from workers.doctor.installation import examine, examine_hosts
from workers.doctor.workers import serve
from workers.worker.bootstrap import build_worker
from workers.worker.consumer import install
from workers.worker.consumption import Consumption
from workers.worker.dead_letters import DeadLetters
from workers.worker.dead_queues import DeadQueues
from workers.worker.operator_modules import include

log = structlog.get_logger(__name__)


def _bounds(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Parse MAX,MIN. Raise BadParameter if it is malformed."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+),(\d+)", value)
    if match is None or not int(match[1]) >= int(match[2]) >= 1:
        raise click.BadParameter(f"{value!r} is not of the form MAX,MIN, such as 20,5")
    return int(match[1]), int(match[2])


@click.command()
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Concurrent turns. [default: configured]"
)
@pass_context
def up(context: Context, concurrency: int | None) -> int:
    """Run a broker and a worker here, until Ctrl-C.

    Starts an embedded broker unless one is configured or running, and restarts it if it dies. Leaves a running
    broker alone. On exit, running turns continue under the next worker if it starts before their leases expire.
    """
    _log_to_stderr(context.settings)
    with BrokerKeeper(context.embedded) if context.embedded else nullcontext():
        return _work(context, concurrency, with_totals=True)


@click.command()
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Concurrent turns. [default: configured]"
)
@click.option(
    "--autoscale",
    callback=_bounds,
    metavar="MAX,MIN",
    help="Let Celery scale concurrency with load, within these bounds.",
)
@click.option("--drain", is_flag=True, help="When stopped, wait for running turns to finish.")
@pass_context
def worker(context: Context, concurrency: int | None, autoscale: tuple[int, int] | None, drain: bool) -> int:
    """Run turns until stopped.

    SIGTERM and Ctrl-C leave running turns to the next worker; with --drain, only a second signal does.
    """
    return _work(context, autoscale or concurrency, with_totals=False, finishes=drain)


@click.command()
@pass_context
def down(context: Context) -> int:
    """Stop the embedded broker.

    Queued turns stay in its file until it is started again.
    """
    if context.embedded is None:
        raise click.UsageError("RUNTURN_BROKER_URL names another broker; stop that one where it runs.")
    click.echo("stopped" if context.embedded.stop() else "was not running")
    return 0


@click.command()
@pass_context
def exporter(context: Context) -> int:
    """Serve the whole fleet's tokens and costs at /metrics.

    Reads the ledger: run one exporter for each ledger, alongside the workers. `runturn up` includes it.
    """
    settings = context.settings
    _log_to_stderr(settings)
    context.serve()
    registry = new_registry()
    health = Health(_redactor(settings).text)
    health.need(ledger := Dependency("ledger", context.ledger.ping))
    registry.register(_totals(context, ledger))
    Dependencies(registry).watch(health.dependencies)
    with health, StatusServer(registry, health, settings.metrics_host, settings.metrics_port) as server:
        log.info("exporter is ready", metrics=f"{server.url}/metrics")
        threading.Event().wait()  # until `workers.stopping` ends it
    return 0


@click.command()
@click.option("--host", metavar="NAME", help="Check only this host.")
@json_option
@pass_context
def doctor(context: Context, host: str | None, as_json: bool) -> int:
    """Check everything a turn needs.

    Reports what is missing, here and on all hosts, and how to fix it. Running workers examine their hosts
    themselves; without one, hosts are examined from here. Exits with 0 only if nothing is missing.
    """
    os.environ.update(secret_files.variables(os.environ))
    logging.getLogger("remote").addHandler(logging.NullHandler())  # the checks show these errors, with remedies
    checks: list[Check] = []
    for check in examine(context, host):
        if not as_json:
            where = (check.host, check.workers)
            if check.host is not None and where not in {(earlier.host, earlier.workers) for earlier in checks}:
                click.echo(f"host {check.host}{_seen_by(check.workers)}")
            _print_check(check)
        checks.append(check)
    healthy = all(check.ok for check in checks)
    if as_json:
        print_json({"healthy": healthy, "checks": [check.document() for check in checks]})
    return COMPLETED if healthy else FAILED


def _work(
    context: Context, room: int | tuple[int, int] | None, *, with_totals: bool, finishes: bool = False
) -> int:
    settings, registry = context.settings, new_registry()
    os.environ.update(secret_files.variables(os.environ))
    _log_to_stderr(settings)
    context.serve()
    redact, app = _redactor(settings).text, context.app
    include(app, settings.include, redact)
    serve(lambda only, over_ssh: examine_hosts(context, only, over_ssh=over_ssh), redact)
    health = Health(redact)
    health.need(Dependency("broker", BrokerProbe(app.conf.broker_url).ask))
    health.need(ledger := Dependency("ledger", context.ledger.ping))
    consumption = Consumption()
    health.unready_if("consuming", consumption.problem)
    if with_totals:
        registry.register(_totals(context, ledger))
    worker = build_worker(settings, context.state, context.ledger, app, registry, health, finishes=finishes)
    slots = room or settings.agent.max_concurrent_agents
    with (
        health,
        StatusServer(registry, health, settings.metrics_host, settings.metrics_port) as server,
        DeadLetters(context.ledger.dead_letters, context.ledger.clock) as dead_letters,
        DeadQueues(app, dead_letters),
    ):
        install(app, dead_letters, consumption)
        log.info("worker starts", slots=slots, metrics=f"{server.url}/metrics", state_dir=str(context.state.root))
        return worker.run(f"{NODES}{platform.node()}.{os.getpid()}", slots, alone=not with_totals)


def _totals(context: Context, ledger: Dependency) -> LedgerCollector:
    words = Vocabulary(context.registry, context.settings.queues[0])
    return LedgerCollector(context.ledger, words, context.ledger.clock.read, ledger.answers)


def _redactor(settings: Settings) -> Redactor:
    return Redactor.of_environment({**settings.secrets, **os.environ})


def _log_to_stderr(settings: Settings) -> None:
    configure_logging(_redactor(settings), level=settings.log_level, form=settings.log_format)
    log_uncaught()


def _seen_by(workers: tuple[str, ...]) -> str:
    """Return whose examination it was, in words."""
    if not workers:
        return ""
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    return f" (examined by {workers[0]}{more})"


def _print_check(check: Check) -> None:
    print_mark(ok=check.ok, warning=check.warning)
    click.echo(printable(f" {check.name:<17} {check.detail}"))
    if check.remedy:
        click.echo(printable(f"    → {check.remedy}"))
