"""Login settings: from ssh_config, overridden by the target."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh import SSHClientConnectionOptions

from remote.daemon_threads import DaemonExecutor
from remote.ssh.target import Target

_KEEPALIVE_S = 15
_KEEPALIVES = 3  # unanswered before a connection counts as lost
DEAD_S = _KEEPALIVE_S * (_KEEPALIVES + 1)

# Logins are unattended: no password prompts, nothing of this machine is forwarded, and a plain shell suffices.
_UNATTENDED: Mapping[str, Any] = {
    "password_auth": False,
    "kbdint_auth": False,
    "pkcs11_provider": None,  # asks for a PIN
    "agent_forwarding": False,
    "x11_forwarding": False,
    "request_pty": False,
    "env": None,
    "send_env": None,
    "canonicalize_hostname": False,  # the key that is looked up must belong to the host that we connect to
    "login_timeout": 0,  # the connect timeout covers both
    "keepalive_interval": _KEEPALIVE_S,
    "keepalive_count_max": _KEEPALIVES,
}

# Checking an RSA key of ours takes a tenth of a second per connect. OpenSSH does not check them either.
asyncssh.set_default_skip_rsa_key_validation(True)


@dataclass(frozen=True, slots=True)
class Login:
    """Everything known about a login before it begins."""

    target: Target
    options: SSHClientConnectionOptions

    @property
    def place(self) -> str:
        """Return the address and port that it leads to."""
        host = self.options.host
        return f"[{host}]:{self.options.port}" if ":" in host else f"{host}:{self.options.port}"

    @property
    def known_as(self) -> tuple[str, int]:
        """Return the name and port under which its host key is recorded; an alias has no port (see HostKeys)."""
        if self.options.host_key_alias:
            return self.options.host_key_alias, 22
        return self.options.host, self.options.port

    @property
    def jump(self) -> str | None:
        """Return the jump hosts, if any."""
        jump = self.target.jump or self.options.tunnel
        return jump if isinstance(jump, str) and jump.lower() != "none" else None

    def settings(self) -> dict[str, Any]:
        """Return the arguments for `asyncssh.connect`."""
        settings: dict[str, Any] = {"host": self.target.address, "options": self.options}
        settings["final"] = False  # else it would read ssh_config again
        if not self.options.config.get("Ciphers"):
            settings["encryption_algs"] = "^aes128-gcm@openssh.com"  # the fastest one on both sides
        command = self.options.config.get("ProxyCommand")
        if command and not self.target.jump:
            # Run by a shell, as in OpenSSH. asyncssh would take its stderr for data from the host.
            settings["proxy_command"] = ["sh", "-c", f"exec 3>&2 2>/dev/null; exec {command}"]
        else:
            settings["proxy_command"] = None
        return settings


class Logins:
    """Prepares logins for one event loop, in separate threads: a `Match exec` or the keys' disk may hang.

    A target has one preparation at a time, shared by all callers. While it hangs, no other begins.
    """

    def __init__(self, config_file: Path | None, timeout_s: float) -> None:
        self._config_file = config_file
        self._timeout_s = timeout_s
        self._threads = DaemonExecutor()
        self._under_way: dict[Target, tuple[Future[Login], float]] = {}  # with the time to give up

    async def prepare(self, target: Target) -> Login:
        """Call `prepare`. Raise what it raises, or TimeoutError: at once if an earlier call still hangs."""
        preparation, give_up_at = self._under_way.get(target) or self._begin(target)
        async with asyncio.timeout_at(give_up_at):
            return await asyncio.wrap_future(preparation)

    def _begin(self, target: Target) -> tuple[Future[Login], float]:
        give_up_at = asyncio.get_running_loop().time() + self._timeout_s
        preparation = self._threads.submit(prepare, target, self._config_file, self._timeout_s)
        self._under_way[target] = preparation, give_up_at
        preparation.add_done_callback(lambda _: self._under_way.pop(target))  # in that thread; a pop is atomic
        return preparation, give_up_at


def prepare(target: Target, config_file: Path | None, timeout_s: float) -> Login:
    """Read ssh_config and keys. Block on files. Raise ValueError, OSError, or whatever asyncssh raises."""
    settings = {**_UNATTENDED, "host": target.address, "connect_timeout": timeout_s, **_settings(target)}
    settings["config"] = [str(config_file)] if config_file else ()  # (): the user's, as in `asyncssh.connect`
    try:
        options = SSHClientConnectionOptions(**settings)
        if options.config.has_match_final():
            options = SSHClientConnectionOptions(**settings, final=True)
    except asyncssh.KeyImportError as error:
        raise asyncssh.KeyImportError(f"{_identities(settings)}: {error}") from error
    if target.identity and not options.client_keys:  # with IdentitiesOnly, asyncssh raises no error
        raise asyncssh.KeyImportError(f"{target.identity}: not a private key, or one with a passphrase")
    return Login(target, options)


def _settings(target: Target) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if target.user:
        settings["username"] = target.user
    if target.port:
        settings["port"] = target.port
    if target.identity:
        settings |= {"client_keys": [str(target.identity)], "agent_path": None}
    return settings


def _identities(settings: Mapping[str, Any]) -> str:
    """Return the configured private keys: asyncssh does not say which of them it cannot read."""
    without_keys = SSHClientConnectionOptions(**{**settings, "client_keys": None})
    files = settings.get("client_keys") or without_keys.config.get("IdentityFile")
    return " or ".join(files) if isinstance(files, list) else "~/.ssh/id_*"
