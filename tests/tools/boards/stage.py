"""A small fleet for the boards: workers, an exporter, hosts over SSH, and a Prometheus that scrapes them all."""

from __future__ import annotations

import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from kombu import Connection

from adapters.protocol.request import TurnRequest
from tests.support.fleets.fleet import RUNTURN, Fleet, Worker
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.prometheus_server import Prometheus
from tests.support.ssh.ssh_host import ssh_host, ssh_hosts
from tests.support.ssh.ssh_logins import Login
from tests.support.waiting import until
from tests.tools.boards.turns import Cast
from workers.app import QUEUE, create_app
from workers.brokers.settings import turn_queue

_RULES = ROOT / "ops" / "prometheus" / "rules.yml"


class Stage:
    """The running fleet, and methods to act on it."""

    def __init__(self, fleet: Fleet, hosts: list[Login], cast: Cast) -> None:
        self.fleet = fleet
        self.hosts = hosts
        self.cast = cast
        self.ports = {"worker": [free_port(), free_port()], "exporter": [free_port()]}
        self.workers: list[Worker] = []

    def start_worker(self, number: int) -> Worker:
        """Start the first or the second worker; each keeps its port across restarts."""
        prefix = ("env", f"RUNTURN_METRICS_PORT={self.ports['worker'][number]}")
        worker = self.fleet.start_worker(prefix=prefix)
        self.workers.append(worker)
        return worker

    @contextmanager
    def exporter(self) -> Iterator[None]:
        """Run the exporter of this ledger."""
        log = self.fleet.state.logs / "exporter.log"
        environment = {**self.fleet.environment, "RUNTURN_METRICS_PORT": str(self.ports["exporter"][0])}
        with log.open("wb") as output:
            process = subprocess.Popen([*RUNTURN, "exporter"], env=environment, stdout=output, stderr=output)
        try:
            until(lambda: b"exporter is ready" in log.read_bytes() or process.poll() is not None, "an exporter")
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.terminate()
            process.wait()

    def prometheus(self) -> Prometheus:
        """Return a Prometheus as in compose.yaml, but with one scrape per second and alerts that fire at once."""
        rules = yaml.safe_load(_RULES.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        hasty = self.fleet.root / "rules.yml"
        hasty.write_text(yaml.safe_dump(rules))
        return Prometheus(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(hasty)],
                "scrape_configs": [
                    {
                        "job_name": f"runturn-{job}",
                        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
                    }
                    for job, ports in self.ports.items()
                ],
            },
            "--enable-feature=exemplar-storage",
        )

    def queue(self, options: dict[str, Any], **fields: Any) -> str:
        """Queue a turn that plays these options; return its id."""
        return self.fleet.client.enqueue(self.request(options, **fields))

    def request(self, options: dict[str, Any], **fields: Any) -> TurnRequest:
        """Return the request for a turn that plays these options."""
        return self.fleet.request(agent="scripted", options=options, **fields)

    def queue_later(self, options: dict[str, Any], seconds: float) -> None:
        """Send a turn that is due after a delay, as any producer would."""
        document = {
            "prompt": "later",
            "workspace": str(self.fleet.workspace),
            "agent": "scripted",
            "options": options,
        }
        app = create_app(self.fleet.broker.url)
        queue = turn_queue(QUEUE)
        app.send_task("runturn.run_turn", args=[document], countdown=seconds, queue=queue)

    def queue_rubbish(self) -> None:
        """Queue an unreadable message."""
        with Connection(self.fleet.broker.url) as connection:
            connection.Producer().publish(
                b"{",
                routing_key=QUEUE,
                declare=[turn_queue(QUEUE)],
                content_type="application/json",
                content_encoding="utf-8",
                headers={"task": "runturn.run_turn", "id": f"rubbish-{random.random()}"},
            )


@contextmanager
def stage(cast: Cast, **settings: str) -> Iterator[Stage]:
    """Set up a fleet on two hosts over SSH, without workers yet."""
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rt-boards-")))
        hosts = [stack.enter_context(ssh_host(name, root)) for name in ("build1", "build2")]
        described = [
            host.setting(agents={}, max_concurrent_agents=slots) for host, slots in zip(hosts, (5, 4), strict=True)
        ]
        (root / "fleet").mkdir()
        fleet = stack.enter_context(Fleet(root / "fleet", ssh_hosts=ssh_hosts(*described), **settings))
        yield Stage(fleet, hosts, cast)
