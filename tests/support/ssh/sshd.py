"""A real OpenSSH server: one host to log in to, with keys, limits and a log of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.needs import need
from tests.support.ssh import keys, sessions
from tests.support.ssh.accounts import own_account
from tests.support.ssh.config import sshd_config
from tests.support.ssh.links import Link
from tests.support.waiting import until

_PORTS = range(15_000, 32_000)  # the kernel gives none of these to a client, so a restart finds its port free


class Sshd:
    """An sshd with an address and a port of its own. Its limits are OpenSSH's, unless `config` sets them.

    Run by root, it lets in every account that has a login shell; run by anybody else, that user only.
    Who runs the tests has an empty home there, so that no test reads or writes in the real one.
    """

    def __init__(
        self,
        *config: str,
        host_keys: Sequence[str] = ("ed25519",),
        log_level: str = "VERBOSE",
        link: Link | None = None,
    ) -> None:
        for program in ("sshd", "ssh-keygen"):
            need(program)  # before there is anything to remove
        self.host = link.address if link else "127.0.0.1"
        self.port = 0  # is chosen by the first start, and stays
        # not below pytest's directories: the accounts that log in have to reach their authorised keys
        self.folder = Path(tempfile.mkdtemp(prefix="rt-sshd-"))
        self.folder.chmod(0o755)
        self.home = self.folder / "home"  # of the account that runs the tests
        self.home.mkdir()
        self.client_key = keys.new_key(self.folder / "client_key")
        self.user_ca = keys.new_key(self.folder / "user_ca")
        self.authorized_keys = self.folder / "authorized_keys"
        self.authorized_keys.write_text(keys.public(self.client_key) + "\n")
        self.known_hosts = self.folder / "known_hosts"
        self._config = config
        self._kinds = tuple(host_keys)
        self._new_host_keys()
        self._log_level = log_level
        self._log = self.folder / "log"
        self._log.touch()
        self._link = link
        self._listener: subprocess.Popen[bytes] | None = None
        self._tie: subprocess.Popen[bytes] | None = None

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
        """Listen: for the first time on any free port, later on the same one. It can be reached on return."""
        assert self._listener is None, "it is running"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # the package leaves that to systemd
        ports = [self.port] if self.port else [secrets.choice(_PORTS) for _ in range(20)]
        if not any(self._listens_on(port) for port in ports):
            raise RuntimeError(f"sshd found no free port:\n{self.log()}")

    def stop(self) -> None:
        """End the server and all its sessions at once. What the clients started goes on, without its client."""
        if self._listener:
            sessions.kill(sessions.stop_all(self._listener.pid))
            if self._tie:
                self._tie.communicate()  # before the pid is given up, which may soon be somebody else's
            self._listener.wait()
            self._listener = self._tie = None

    def close(self) -> None:
        """Stop, and remove keys and log."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, new_host_key: bool = False) -> None:
        """Stop and start on the same port; with new host keys, as a machine does that was set up anew."""
        self.stop()
        if new_host_key:
            self._new_host_keys()
        self.start()

    def sessions(self) -> list[int]:
        """The pids of the processes that serve a connection: one each, logged in or not."""
        return [process.pid for process in sessions.of(self._listener.pid)] if self._listener else []

    def kill_sessions(self) -> None:
        """Kill the processes that serve connections. What the clients started goes on, without its client."""
        if self._listener:
            sessions.kill(sessions.parts(sessions.of(self._listener.pid)))

    def freeze(self) -> None:
        """Fall silent: connections stay, and the kernel even accepts new ones, but no one answers."""
        if self._listener:
            sessions.stop_all(self._listener.pid)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        if self._listener:
            sessions.resume_all(self._listener.pid)

    def connections(self) -> int:
        """The number of established TCP connections to the port, as this end sees them."""
        return sessions.connections(self._listener.pid, self.port) if self._listener else 0

    def log(self) -> str:
        """All that the server has logged, over all its starts."""
        return self._log.read_text(errors="replace")

    def host_key_line(self, kind: str | None = None) -> str:
        """A line for a file of known hosts; `kind` is one of `host_keys`, if not the first."""
        return f"[{self.host}]:{self.port} {keys.public(self._host_key(kind))}"

    @property
    def host_fingerprint(self) -> str:
        """The first host key's fingerprint: `SHA256:...`."""
        return keys.fingerprint(self._host_key())

    def ssh_argv(self, user: str | None, *command: str, options: Sequence[str] = ()) -> list[str]:
        """The argv of OpenSSH's own client with the authorised key. No user: the one who runs the tests."""
        settings = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
        }
        given = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        user = user or own_account().name
        target = ["-i", str(self.client_key), "-p", str(self.port), f"{user}@{self.host}"]
        return [need("ssh"), "-F", "none", *options, *given, *target, *command]  # the first of two options counts

    def _listens_on(self, port: int) -> bool:
        """Start on this port; False when somebody else has it."""
        self.port = port
        self._write_files()
        past = len(self.log())
        with self._log.open("ab") as log:
            self._listener = listener = (self._link.popen if self._link else subprocess.Popen)(
                [need("sshd"), "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},  # nothing of the tests' own environment gets to a session
                start_new_session=True,
            )
        until(
            lambda: "Server listening on" in self.log()[past:] or listener.poll() is not None,
            "an sshd that listens or gives up",
        )
        if listener.poll() is None:
            self._tie = sessions.tie(listener.pid)
            return True
        self._listener = None
        if "Address already in use" not in self.log()[past:]:
            raise RuntimeError(f"sshd does not start:\n{self.log()[past:]}")
        return False

    def _write_files(self) -> None:
        fixed = [
            f"ListenAddress {self.host}",
            f"Port {self.port}",
            f'PidFile "{self.folder}/pid"',
            f"LogLevel {self._log_level}",
            f'AuthorizedKeysFile "{self.authorized_keys}"',
            f'TrustedUserCAKeys "{self.user_ca}.pub"',
            *(f'HostKey "{self._host_key(kind)}"' for kind in self._kinds),
        ]
        text = sshd_config(fixed, self._config, own_account().name, self.home)
        (self.folder / "sshd_config").write_text(text)
        self.known_hosts.write_text("".join(f"{self.host_key_line(kind)}\n" for kind in self._kinds))

    def _host_key(self, kind: str | None = None) -> Path:
        return self.folder / f"host_key_{kind or self._kinds[0]}"

    def _new_host_keys(self) -> None:
        for kind in self._kinds:
            keys.new_key(self._host_key(kind), kind)
