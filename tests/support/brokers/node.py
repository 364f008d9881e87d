"""A running node of RabbitMQ, as whoever knows its ports uses it."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import count
from pathlib import Path

import amqp

from tests.support.needs import need

COOKIE = "runturntest"
_ASK_S = 60.0
_VHOSTS = count(1)  # of this process: each module that imports the fixture has a node of its own to speak to

# What docs/getting-started.md sets for the queue `runturn`.
POLICY = json.dumps(
    {
        "delivery-limit": 20,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "runturn.dead",
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }
)


class Node:
    """It listens on 127.0.0.1, on `port` for AMQP and on `distribution` for Erlang."""

    def __init__(self, folder: Path, port: int, distribution: int) -> None:
        self._call = need("erl_call")
        self.folder = folder
        self.port = port
        self.distribution = distribution

    def new_vhost(self, *, prepared: bool = True) -> Vhost:
        """An empty place of its own, for one test; `prepared` for turns as docs/getting-started.md has it."""
        vhost = Vhost(self, f"test-{os.getpid()}-{next(_VHOSTS)}")
        all_of_it = ", ".join(['<<".*">>'] * 3)
        kind = '#{default_queue_type => <<"quorum">>}' if prepared else "#{}"
        self.ask(
            f'rabbit_vhost:add({vhost.term}, {kind}, <<"tests">>), rabbit_auth_backend_internal:'
            f'set_permissions(<<"guest">>, {vhost.term}, {all_of_it}, <<"tests">>)'
        )
        if prepared:
            self.ask(
                f'rabbit_policy:parse_set({vhost.term}, <<"runturn">>, <<"^runturn$">>, '
                f'<<{json.dumps(POLICY)!s}>>, <<"0">>, <<"queues">>, <<"tests">>)'
            )
        return vhost

    def sync(self) -> None:
        """Have the tables of its queues on the disk now; by itself it does that half a second after a change.

        A quorum queue whose server is killed within that time stays out of use (seen with 3.10).
        """
        self.ask("[dets:sync(Table) || Table <- dets:all()]")

    def ask(self, expression: str) -> str:
        """Have the server evaluate Erlang, and return what that prints. `rabbitmqctl` takes half a second."""
        # -R: named by the server. Two at a time may choose the same random name (-r), and one of them is refused.
        server = ("-address", f"127.0.0.1:{self.distribution}", "-c", COOKIE, "-R")
        said = subprocess.run(
            [self._call, *server, "-e", "-fetch_stdout"],
            input=f"{expression}.\n",
            cwd=self.folder,
            env={"HOME": str(self.folder)},
            check=False,
            capture_output=True,
            text=True,
            timeout=_ASK_S,
        )
        printed, ok, _ = said.stdout.rpartition("{ok, ")
        assert said.returncode == 0 and ok, said.stderr or said.stdout
        return printed


class Vhost:
    """A virtual host: its queues are nobody else's."""

    def __init__(self, server: Node, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def term(self) -> str:
        """Its name in Erlang."""
        return f'<<"{self.name}">>'

    @property
    def url(self) -> str:
        """Where Celery and kombu find it."""
        return f"amqp://guest:guest@127.0.0.1:{self.server.port}/{self.name}"

    def list_queues(self, *columns: str) -> dict[str, tuple[str, ...]]:
        """Columns of all queues, by name: how many messages they hold, unacked ones included, if none is named.

        Counts of quorum queues come late: wait for what you expect.
        """
        table = self._list("rabbit_amqqueue", "name", *(columns or ("messages",)))
        return {name: tuple(values) for name, *values in table}

    def list_exchanges(self) -> set[str]:
        """The names of all exchanges but those that every virtual host has."""
        return {name for (name,) in self._list("rabbit_exchange", "name") if name and not name.startswith("amq.")}

    def messages(self, queue: str) -> int:
        """How many messages a queue holds, unacked ones included; 0 also if there is no such queue."""
        return int(self.list_queues().get(queue, ("0",))[0])

    def take_all(self, queue: str) -> set[str]:
        """Take all messages that are ready in a queue; return their tasks' ids."""
        taken = set()
        with amqp.Connection(host=f"127.0.0.1:{self.server.port}", virtual_host=self.name) as connection:
            channel = connection.channel()
            while message := channel.basic_get(queue, no_ack=True):
                taken.add(message.headers["id"])
        return taken

    def close_connections(self) -> None:
        """Have the server close all connections, as an operator does."""
        # Others may end theirs at this very moment.
        ours = f"(catch rabbit_networking:connection_info(Each, [vhost])) == [{{vhost, {self.term}}}]"
        connections = f"Each <- rabbit_networking:local_connections(), {ours}"
        self.server.ask(f'[rabbit_networking:close_connection(Each, "test") || {connections}]')

    def _list(self, module: str, *columns: str) -> list[list[str]]:
        value = 'case Value of {resource, _, _, Name} -> Name; _ -> io_lib:format("~p", [Value]) end'
        row = f'io:format("~ts~n", [lists:join("\\t", [{value} || {{_, Value}} <- Row])])'
        rows = f"{module}:info_all({self.term}, [{', '.join(columns)}])"
        said = self.server.ask(f"lists:foreach(fun(Row) -> {row} end, {rows})")
        return [line.split("\t") for line in said.splitlines()]
