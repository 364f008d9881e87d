"""A real RabbitMQ: a node of the test's own, with its own name, ports, cookie and data.

Nothing of the system's installation is touched but its programs. Erlang starts its name server (epmd) as a daemon
that stays for good; here it is a child like the others, on a port of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import amqp

from tests.support.brokers.node import COOKIE, Node
from tests.support.needs import need
from tests.support.ports import free_port
from tests.support.ssh.sessions import tie
from tests.support.waiting import until

_DEBIAN = Path("/usr/lib/rabbitmq/bin")  # what is in the PATH there changes to another user, and to its home
_START_S = 90.0  # two or three on an idle machine
_STOP_S = 60.0


class RabbitMQ(Node):
    """A node that is started here. Its data outlive `stop` and `kill`, for the next `start`, but not its context.

    A consumer that holds a message for longer than `consumer_timeout_s` has its channel closed, as the server does
    after 30 minutes by default. Out of its context, it ends with this process, or with who holds `pipe` open.
    """

    def __init__(
        self, folder: Path | None = None, *, consumer_timeout_s: float | None = None, pipe: Path | None = None
    ) -> None:
        self._server = _program("rabbitmq-server")
        self._epmd = need("epmd")
        port, distribution, self._names_port = (free_port() for _ in range(3))
        super().__init__(folder or Path(tempfile.mkdtemp(prefix="rt-rabbit-")), port, distribution)
        self._environment = _environment(self.folder, port, distribution, self._names_port)
        self._pipe = pipe
        self._node: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None
        self._ties: dict[int, subprocess.Popen[bytes]] = {}  # by the pid that they end if the tests are killed
        self.log = self.folder / "log"
        self._configure(consumer_timeout_s)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start it, on the data that it has, and wait until it takes connections."""
        if self._names is None:
            self._names = subprocess.Popen(
                [self._epmd, "-port", str(self._names_port), "-address", "127.0.0.1", "-relaxed_command_check"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self._ties[self._names.pid] = tie(self._names.pid, self._pipe)
            until(lambda: _listens(self._names_port), "Erlang's name server")
        with self.log.open("ab") as log:
            # Its own group, so that a Ctrl-C at the tests does not reach it before they end it.
            self._node = subprocess.Popen(
                [self._server],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._ties[self._node.pid] = tie(self._node.pid, self._pipe)
        until(self._answers, f"RabbitMQ, whose log is {self.log}", _START_S)
        until(self._obeys, "RabbitMQ to take orders", _START_S)  # a moment after it takes connections

    def stop(self) -> None:
        """Stop it in order."""
        if self._node is not None:
            self._untie(self._node)
            self._node.send_signal(signal.SIGTERM)
            try:
                self._node.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._reap()

    def kill(self) -> None:
        """End it as a power cut does."""
        if self._node is not None:
            self._untie(self._node)
            self._node.kill()
            self._node.wait()
            self._reap()

    def close(self) -> None:
        """Kill it, and remove everything."""
        self.kill()
        if self._names is not None:
            self._untie(self._names)
            self._names.kill()
            self._names.wait()
            self._names = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self, consumer_timeout_s: float | None) -> None:
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            "disk_free_limit.absolute = 1MB",  # a full disk of the machine is no test
            "log.console = true",
            "log.console.level = warning",
            "log.file = false",
        ]
        if consumer_timeout_s is not None:
            lines.append(f"consumer_timeout = {round(consumer_timeout_s * 1000)}")
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        # It looks for overdue consumers once a minute and counts messages every five seconds, unless it is told.
        often = "[{rabbit, [{channel_tick_interval, 500}, {quorum_tick_interval, 500}]}].\n"
        (self.folder / "advanced.config").write_text(often)
        (self.folder / "enabled_plugins").write_text("[].\n")
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)

    def _answers(self) -> bool:
        assert self._node is not None
        assert self._node.poll() is None, self.log.read_text(errors="replace")
        try:
            with amqp.Connection(host=f"127.0.0.1:{self.port}", connect_timeout=5):
                return True
        except (OSError, amqp.AMQPError):
            return False

    def _obeys(self) -> bool:
        return self.ask('io:format("~p", [rabbit:is_booted() andalso rabbit:is_running()])') == "true"

    def _untie(self, process: subprocess.Popen[bytes]) -> None:
        """Before a pid is given up: it may soon be somebody else's."""
        if ended := self._ties.pop(process.pid, None):
            ended.kill()
            ended.communicate()

    def _reap(self) -> None:
        self._node = None
        until(lambda: not _listens(self.port), "RabbitMQ to be gone")


def _program(name: str) -> str:
    own = _DEBIAN / name
    return str(own) if own.exists() else need(name)


def _environment(folder: Path, port: int, distribution: int, names: int) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "HOME": str(folder),  # of the cookie
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"runturn{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, instead of waiting for it
        # One scheduler that does not spin: several of these share a small machine.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
            " +S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
        ),
    }


def _listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex(("127.0.0.1", port)) == 0
