"""Agents that try to break out, at each level of isolation: the table in docs/security.md says what came of it.

Each test runs as whoever runs the tests, on this machine, and, if that is root, as an unprivileged account over
SSH. Two turns of the same account run next to it; neither they nor the host may notice.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from adapters.isolation import Isolation
from remote.spool import Exit, Spool
from tests.support.needs import need, need_namespaces, need_root
from tests.support.shared import run_folder
from tests.support.ssh.isolated import Place, place_of
from tests.support.ssh.laboratory import drain, eventually, read_until
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import text_of

NONE, NAMESPACE, SANDBOX = Isolation.NONE, Isolation.NAMESPACE, Isolation.SANDBOX


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    """An sshd for all tests of a module."""
    need_root()
    need("sshd")
    with Sshd() as sshd:
        yield sshd


@pytest.fixture(params=list(Isolation), ids=str)
def level(request: pytest.FixtureRequest) -> Isolation:
    """Each level that this machine can provide."""
    if request.param is not NONE:
        need_namespaces()
    if request.param is SANDBOX:
        need("bwrap")
    return Isolation(request.param)


@pytest.fixture(params=["own", "account"])
def place(request: pytest.FixtureRequest, level: Isolation, tmp_path: Path) -> Iterator[Place]:
    """A host at each level, for each kind of account."""
    sshd = request.getfixturevalue("server") if request.param == "account" else None
    with place_of(level, sshd, tmp_path / "lab") as made:
        yield made


# Each holds its pipe open. The chain ends once nobody reads what it prints; the last one sheds everything that it
# could be found by. They name the workspace, for the laboratory to end them if nothing else does.
DAEMONS = r"""
hold='exec >"$0"; read x <"$1"'
(setsid env -i sh -c "$hold" environment never "$PWD" &)
((sh -c "$hold" forks never "$PWD" &) &)
hop='echo . || exit; sh -c "$0" "$0" "$1" & exit'
(exec >chain; exec sh -c "$hop" "$hop" "$PWD") &
(ulimit -S -m unlimited; setsid env -i sh -c "$hold" everything never "$PWD" &)
until [ -e go ]; do sleep 0.1; done
"""
KINDS = ("environment", "forks", "chain", "everything")


async def test_daemons_end_with_their_turn(place: Place) -> None:
    place.pipe("never")
    pipes = {kind: _Pipe(place.pipe(kind)) for kind in KINDS}
    async with place.neighbours() as others:
        async with others.follow(place.spool(), place.sh(DAEMONS)) as turn:
            await eventually(lambda: all(pipe.is_held() for pipe in pipes.values()))
            place.go()
            await drain(turn)
            assert turn.exit == Exit(0, "exit")
        survivors = [kind for kind in KINDS if pipes[kind].is_held()]
        assert survivors == (["everything"] if place.level is NONE else [])


# 255 processes at most, each of which starts two others.
BOMB = """
blow() { if [ "$1" -gt 0 ]; then blow "$(($1 - 1))" & blow "$(($1 - 1))" & fi; exec sleep 600; }
blow 7
"""


async def test_fork_bomb_ends_with_its_turn(place: Place) -> None:
    limits = place.containment
    if place.level is not NONE:  # a worker makes it a namespace where there is a limit
        limits = replace(limits, max_processes=40)
    spool = place.spool()
    async with place.neighbours() as others, others.follow(spool, place.sh(BOMB), containment=limits) as turn:
        if place.level is NONE:
            await eventually(lambda: len(place.marked(spool)) > 200)
            await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == ("cancel" if place.level is NONE else "processes")
        await place.nothing_left(spool)


# 300 processes of one program, which says how many there were when the kernel refused another.
CROWD = r"""
$SIG{CHLD} = "IGNORE"; $| = 1;
my $count = 0;
while ($count < 300) {
    my $pid = fork;
    last unless defined $pid;
    if ($pid == 0) { sleep 600; exit }
    $count++;
}
print "$count\n";
sleep 600;
"""


@pytest.mark.parametrize("level", [NAMESPACE, SANDBOX], ids=str, indirect=True)
async def test_kernel_bounds_the_tasks_of_users_between_two_looks(place: Place) -> None:
    need("perl")
    limits = replace(place.containment, max_processes=10)
    spool = place.spool()
    agent = place.sh('until [ -e go ]; do sleep 0.1; done; exec perl -e "$1"', CROWD)
    async with place.neighbours() as others, others.follow(spool, agent, containment=limits) as turn:
        keeper = await _keeper(place, spool)
        keeper.suspend()  # until the watcher continues it
        place.go()
        said = await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "processes"
    assert int(said) == 300 if place.is_root else 200 < int(said) < 16 * 10 + 100


GIB = 1 << 30
# A line of 1.3 GB, which tail keeps.
HUNGRY = "{ head -c 1300000000 /dev/zero; sleep 600; } | tail -n 1"


async def test_memory_is_taken_until_the_limit(place: Place) -> None:
    limits = place.containment
    if place.level is not NONE:
        limits = replace(limits, max_memory=GIB)
    spool = place.spool()
    with _alone():
        async with (
            place.neighbours() as others,
            others.follow(spool, place.sh(HUNGRY), containment=limits) as turn,
        ):
            await eventually(lambda: _resident(place.marked(spool)) > GIB or place.state(spool, "reason"))
            over_at = time.monotonic()
            if place.level is NONE:
                await turn.cancel()
            await drain(turn)
            assert turn.exit is not None
            assert turn.exit.reason == ("cancel" if place.level is NONE else "memory")
            assert time.monotonic() - over_at < 10


# What can be done to each of the processes that a file names.
REACH = r"""
until [ -e go ]; do sleep 0.1; done
while read -r who pid; do
    kill -0 "$pid" 2>/dev/null && echo "$who signal"
    (: <"/proc/$pid/mem") 2>/dev/null && echo "$who memory"  # which is allowed to those who may trace it
    grep -q . "/proc/$pid/environ" 2>/dev/null && echo "$who environment"
done <targets
"""


async def test_other_processes_are_reached_without_isolation_only(place: Place) -> None:
    spool = place.spool()
    async with place.neighbours() as others, others.follow(spool, place.sh(REACH)) as turn:
        targets = {
            "supervisor": place.pid(spool, "supervisor"),
            "watcher": place.pid(spool, "watcher"),
            "neighbour": place.agent(others.spools[0]),
            "neighbouring-supervisor": place.pid(others.spools[0], "supervisor"),
        }
        (place.workspace / "targets").write_text("".join(f"{who} {pid}\n" for who, pid in targets.items()))
        place.go()
        said = await drain(turn)
    ways = [f"{who} {way}" for who in targets for way in ("signal", "memory", "environment")]
    assert said.decode().splitlines() == (ways if place.level is NONE else [])


KILL = r"""
until [ -e go ]; do sleep 0.1; done
kill -KILL $(cat targets) 2>/dev/null && echo killed && exec sleep 600
echo unscathed
"""


async def test_agent_that_kills_its_own_shells_loses_its_turn_or_fails(place: Place) -> None:
    spool = place.spool()
    async with place.neighbours() as others, others.follow(spool, place.sh(KILL)) as turn:
        pids = [place.pid(spool, name) for name in ("supervisor", "watcher")]
        (place.workspace / "targets").write_text(" ".join(map(str, pids)))
        place.go()
        said = await drain(turn)
        lost = (b"killed\n", "lost")
        assert turn.exit is not None
        assert (said, turn.exit.reason) == (lost if place.level is NONE else (b"unscathed\n", "exit"))
        await place.nothing_left(spool)


# Looks below its view of the processes; a user namespace would give back the right to do so, if anything did.
UNCOVER = r"""
until [ -e go ]; do sleep 0.1; done
read -r pid <targets
look='umount -l /proc && grep -qs NEIGHBOURS_SECRET "/proc/$0/environ" && echo seen'
sh -c "$look" "$pid" 2>/dev/null || unshare -Urm sh -c "$look" "$pid" 2>/dev/null || echo unseen
"""


@pytest.mark.parametrize("level", [NAMESPACE, SANDBOX], ids=str, indirect=True)  # else, /proc is the machine's
async def test_root_in_a_namespace_can_uncover_other_processes(place: Place) -> None:
    spool = place.spool()
    async with place.neighbours() as others, others.follow(spool, place.sh(UNCOVER)) as turn:
        (place.workspace / "targets").write_text(str(place.agent(others.spools[0])))
        place.go()
        said = await drain(turn)
    assert said == (b"seen\n" if place.is_root and place.level is NAMESPACE else b"unseen\n")


READ = 'for file; do head -c 1 "$file" >/dev/null 2>&1 && echo "$file"; done'


async def test_files_of_others_are_read_except_in_a_sandbox(place: Place) -> None:
    async with place.neighbours() as others:
        spool = Path(others.spools[0].path)
        files = [
            *(spool / name for name in ("prompt", "events", "err")),
            others.workspaces[0] / "turn.secret",
            place.write(place.home / ".ssh" / "key", "key\n"),
            place.write(place.home / ".bash_history", "history\n"),
        ]
        (spool / "err").write_bytes(b"error\n")
        said, _ = await others.run(place.sh(READ, *map(str, files)))
        expected = [] if place.level is SANDBOX else [str(file) for file in files if file.name != "events"]
        assert [line for line in said if not line.endswith("/events")] == expected


async def test_files_of_the_worker_are_read_by_its_own_user_except_in_a_sandbox(
    place: Place, tmp_path: Path
) -> None:
    folder = (tmp_path if place.login else place.home) / "state"  # over SSH, the worker is somebody else
    folder.mkdir(mode=0o700)
    files = [folder / name for name in ("ledger.sqlite3", "known_hosts", "broker.rdb")]
    for file in files:
        file.write_text("worker's\n")
    async with place.neighbours() as others:
        said, _ = await others.run(place.sh(READ, *map(str, files)))
    assert said == ([] if place.login or place.level is SANDBOX else [str(file) for file in files])


async def test_secrets_of_the_system_are_read_by_root_at_every_level(place: Place) -> None:
    async with place.neighbours() as others:
        said, _ = await others.run(place.sh(READ, "/etc/shadow"))
    assert said == (["/etc/shadow"] if place.is_root else [])


CONTROL = (
    *("turn", "supervisor", "watcher", "agent", "heartbeat", "reason", "limits", "end", "events", "err"),
    *("prompt", "files/given", "files/new"),
)
# Later lines of these files mean nothing to their readers.
FORGE = r"""
for file; do echo forged >>"$RUNTURN_SPOOL/$file"; done 2>/dev/null
echo written
until [ -e go ]; do sleep 0.1; done
"""


async def test_control_files_of_the_turn_are_written_except_in_a_sandbox(place: Place) -> None:
    spool = place.spool()
    agent = place.sh(FORGE, *CONTROL, stdin=b"prompt\n", files={"given": b"given\n"})
    async with place.neighbours() as others, others.follow(spool, agent) as turn:
        await read_until(turn, b"written")
        written = [name for name in CONTROL if "forged" in text_of(Path(spool.path, name))]
        place.go()
        await drain(turn)
        assert turn.exit == Exit(0, "exit")
    assert written == ([] if place.level is SANDBOX else list(CONTROL))


# By what it was started with.
REOPEN = "echo forged >>/proc/self/fd/0; echo written; until [ -e go ]; do sleep 0.1; done"


async def test_prompt_and_output_of_the_turn_are_written_at_every_level(place: Place) -> None:
    spool = place.spool()
    agent = place.sh(REOPEN, stdin=b"prompt\n")
    async with place.neighbours() as others, others.follow(spool, agent) as turn:
        await read_until(turn, b"written")
        assert text_of(Path(spool.path, "prompt")) == "prompt\nforged\n"
        place.go()
        await drain(turn)
        assert turn.exit == Exit(0, "exit")


FILL = 'head -c 4000000 /dev/zero >"$1"; echo filled; until [ -e go ]; do sleep 0.1; done'


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm"])
async def test_temporary_files_fill_the_host_except_in_a_sandbox(place: Place, folder: str) -> None:
    with tempfile.NamedTemporaryFile(prefix="rt-", dir=folder) as file:
        place.give(Path(file.name))
        agent = place.sh(FILL, file.name)
        async with place.neighbours() as others, others.follow(place.spool(), agent) as turn:
            await read_until(turn, b"filled")
            size = Path(file.name).stat().st_size
            place.go()
            await drain(turn)
    assert size == (0 if place.level is SANDBOX else 4_000_000)


# 40 MB in each place, which stay while the agent does nothing.
HOARD = """
for place in /tmp /var/tmp /run /dev/shm "$HOME" /dev /; do
    head -c 40000000 /dev/zero >"${place%/}/rt-hoard" || echo "not in $place"
done 2>/dev/null
until [ -e go ]; do sleep 0.1; done
"""


@pytest.mark.parametrize("level", [SANDBOX], ids=str, indirect=True)  # elsewhere, these are the host's
async def test_files_in_the_memory_of_a_sandbox_count_as_its_memory(place: Place) -> None:
    limits = replace(place.containment, max_memory=200 << 20)
    with _alone():
        async with place.neighbours() as others:
            _, end = await others.run(place.sh(HOARD), containment=limits)
    assert end.reason == "memory"


# To a socket of a file system, to one without a name there, and over the network.
CONNECT = r"""
use Socket;
for (@ARGV) {
    my ($kind, $where) = split /=/;
    my $address = $kind eq "port" ? pack_sockaddr_in($where, INADDR_LOOPBACK)
        : pack_sockaddr_un($kind eq "abstract" ? "\0$where" : $where);
    socket(my $end, $kind eq "port" ? PF_INET : PF_UNIX, SOCK_STREAM, 0);
    print "$kind\n" if connect($end, $address);
}
"""


async def test_sockets_of_the_system_are_reached_except_in_a_sandbox(place: Place) -> None:
    need_root()
    need("perl")
    with tempfile.TemporaryDirectory(prefix="rt-", dir="/run") as folder, _listening(Path(folder)) as places:
        async with place.neighbours() as others:
            said, _ = await others.run(place.sh('exec perl -e "$@"', CONNECT, *places))
    assert said == (["abstract", "port"] if place.level is SANDBOX else ["socket", "abstract", "port"])


# A private segment of memory, which is removed in the end: both are 0 in Linux's ipc.h.
SHARE = """
$id = shmget(0, 100, 0600); shmwrite($id, "private", 0, 7); $| = 1; print "$id\\n";
<STDIN>; shmctl($id, 0, 0);
"""
SHARED = r"""shmread($ARGV[0], $what, 0, 7) && print "$what\n" """


async def test_memory_that_processes_share_is_read_except_in_a_sandbox(place: Place) -> None:
    perl = [need("perl"), "-e"]
    user, group = (place.account.uid, place.account.gid) if place.login else (None, None)
    with subprocess.Popen([*perl, SHARE], stdin=PIPE, stdout=PIPE, text=True, user=user, group=group) as sharing:
        assert sharing.stdout is not None
        segment = sharing.stdout.readline().strip()
        async with place.neighbours() as others:
            said, _ = await others.run(place.sh('exec perl -e "$@"', SHARED, segment))
        sharing.communicate("\n")
    assert said == ([] if place.level is SANDBOX else ["private"])


class _Pipe:
    """A pipe that is held open for writing by whoever has not ended."""

    def __init__(self, path: Path) -> None:
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def is_held(self) -> bool:
        """Return False before anybody has opened it, too."""
        try:
            while os.read(self._end, 65536):
                pass
        except BlockingIOError:
            return True
        return False


@contextmanager
def _alone() -> Iterator[None]:
    """Let no other test that takes as much memory run meanwhile."""
    with (run_folder() / "memory.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def _keeper(place: Place, spool: Spool) -> psutil.Process:
    """Return the shell that looks at a turn's limits: the watcher's second shell that naps, after its guard."""
    watcher = psutil.Process(place.pid(spool, "watcher"))

    def shells() -> list[psutil.Process]:
        return [each for each in watcher.children() if _naps(each, spool)]

    await eventually(lambda: len(shells()) == 2)
    return shells()[1]


def _naps(process: psutil.Process, spool: Spool) -> bool:
    try:
        return spool.path in process.cmdline() and bool(process.children())
    except psutil.NoSuchProcess:
        return False


def _resident(pids: list[int]) -> int:
    return sum(_resident_of(pid) for pid in pids)


def _resident_of(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


@contextmanager
def _listening(folder: Path) -> Iterator[list[str]]:
    """Yield what the agent is told: where to connect to."""
    folder.chmod(0o755)
    path, name = folder / "socket", f"rt-{folder.name}"
    with (
        socket.socket(socket.AF_UNIX) as visible,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.create_server(("127.0.0.1", 0)) as port,
    ):
        visible.bind(str(path))
        path.chmod(0o666)
        abstract.bind(f"\0{name}")
        for each in (visible, abstract):
            each.listen()
        yield [f"socket={path}", f"abstract={name}", f"port={port.getsockname()[1]}"]
