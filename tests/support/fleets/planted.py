"""A fleet that is full of secrets, whose agent says everything it knows."""

from __future__ import annotations

import gzip
import os
import secrets
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import redis

from ops.ledger import Ledger
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.ports import free_port
from tests.support.programs import python_program
from workers.app import create_app
from workers.client.sync import Client

# By where they are planted. The values have no shape of their own, but where it says so.
KEYS = {
    "ANTHROPIC_API_KEY": secrets.token_hex(16),  # the agent's login: it has it
    "GITHUB_TOKEN": secrets.token_hex(16),  # the turns ask for it
    "DEPLOY_KEY": "-----BEGIN PRIVATE " + f"KEY-----\n{secrets.token_hex(16)}\n-----END PRIVATE KEY-----\n",
    "DATABASE_PASSWORD": secrets.token_hex(16),  # nobody asks for it
    "NOTIFY": "xoxb-" + secrets.token_hex(16),  # its name does not tell that it is a secret
    "BROKER": secrets.token_hex(16),  # in a URL, as the next one
    "LEDGER": secrets.token_hex(16),
}
ASKED_FOR = ["GITHUB_TOKEN", "DEPLOY_KEY"]
IN_PROMPTS = "ghp_" + secrets.token_hex(16)  # known to nobody

# It looks into the worker, too, which runs as the same user.
_AGENT = """
import json, os, signal, sys

prompt = sys.stdin.read()
own = "\\n".join(f"{{name}}={{value}}" for name, value in os.environ.items())
with open("/proc/%s/environ" % open({pid_file!r}).read()) as file:
    known = own + file.read().replace("\\0", "\\n")
known += json.dumps(dict(os.environ))

def leaky(value):
    if isinstance(value, dict):
        return {{key: loud(key, each) for key, each in value.items()}}
    return [leaky(each) for each in value] if isinstance(value, list) else value

def loud(key, value):
    said = key in ("text", "content", "result", "command", "description") and isinstance(value, str)
    return value + known if said else leaky(value)

lines = [json.loads(line) for line in open({recording!r})]
print(known, flush=True)
print(known, file=sys.stderr, flush=True)
for line in lines[:6]:
    print(json.dumps(leaky(line)), flush=True)
if "hang" in prompt:
    signal.pause()
if "exit" in prompt:
    sys.exit(3)
if "refuse" in prompt:
    lines[-1] |= {{"is_error": True, "subtype": "error_during_execution"}}
for line in lines[6:]:
    print(json.dumps(leaky(line)), flush=True)
"""


class PlantedFleet(Fleet):
    """Its broker is the embedded one, over TCP and with a password; so is, with a `ledger`, that."""

    def __init__(self, root: Path, ledger: str | None = None) -> None:
        self._port = free_port()
        self.broker_url = f"redis://:{KEYS['BROKER']}@127.0.0.1:{self._port}/0"
        self.pid_file = root / "pid"
        text = _AGENT.format(recording=str(RECORDINGS / "a_parallel_tools.jsonl"), pid_file=str(self.pid_file))
        agent = python_program(root / "agent", text, "-IS")
        environment = {"PATH": os.environ["PATH"], "HOME": str(root), **KEYS}
        for where in ("BROKER", "LEDGER"):
            del environment[where]
        self.transcripts = root / "state" / "transcripts"
        settings = {
            "broker_url": self.broker_url,
            "agent__command": str(agent),
            "transcripts_url": str(self.transcripts),
            **({"ledger_url": ledger} if ledger else {}),
        }
        super().__init__(root, environment, **settings)
        self._ledger_url = ledger

    def __enter__(self) -> PlantedFleet:
        super().__enter__()
        with redis.Redis(unix_socket_path=str(self.broker.socket)) as client:
            client.config_set("bind", "127.0.0.1")
            client.config_set("port", self._port)
            client.config_set("requirepass", KEYS["BROKER"])
        return self

    def __exit__(self, *arguments: object) -> None:
        with self.redis() as client:
            client.config_set("requirepass", "")
        super().__exit__(*arguments)

    def redis(self) -> redis.Redis:
        """The broker."""
        return redis.Redis.from_url(self.broker_url)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger.open(self._ledger_url or self.state.ledger_url)

    @cached_property
    def client(self) -> Client:
        return Client(create_app(self.broker_url), self.ledger)

    def files(self) -> bytes:
        """All that was written below the state directory, with its name; what is compressed also as it was."""
        found = []
        for path in self.state.root.rglob("*"):
            with suppress(OSError):  # a socket, a file that has gone
                data = path.read_bytes() if path.is_file() else b""
                found += [str(path).encode(), data]
                if data.startswith(b"\x1f\x8b"):
                    found.append(gzip.decompress(data))
        return b"\n".join(found)

    def broker_keys(self) -> bytes:
        """Everything that the broker holds."""
        with self.redis() as client:
            read: dict[bytes, Any] = {
                b"string": client.get,
                b"list": lambda key: client.lrange(key, 0, -1),
                b"set": client.smembers,
                b"hash": client.hgetall,
                b"zset": lambda key: client.zrange(key, 0, -1),
            }
            held = [(key, read[client.type(key)](key)) for key in client.scan_iter()]
        return repr(held).encode()
