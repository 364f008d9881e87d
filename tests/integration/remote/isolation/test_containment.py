"""Agents in namespaces of their own: nothing gets out, and nothing outlives the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from adapters.command import FILES
from adapters.isolation import Isolation, Network
from remote.containment import Containment
from remote.errors import SpawnRefused
from remote.follower import Lease
from remote.shell import library
from remote.spool import Exit
from remote.test_command import run_check
from tests.integration.remote.conftest import SHELLS, opened
from tests.support.needs import need, need_namespaces, need_root
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until

# What carries no mark, leads its own session, and has no parent left. It keeps the pipe open.
DAEMON = """(setsid env -i sh -c 'exec >"$0"; sleep 600' "$1" &)"""
# Hands over to a child every millisecond, without an environment.
CHAIN = """
import os, sys
pipe = os.open(sys.argv[1], os.O_WRONLY)
if os.fork() == 0:
    os.environ.clear()
    while True:
        os.write(pipe, b".")
        if os.fork(): os._exit(0)
        os.setsid()
os.write(1, b"ready\\n")
sys.stdin.read()
os.wait()
"""
# Empties the file that its output goes to.
SHORTEN = """
import os, time
os.write(1, b"before\\n")
while not os.path.exists(os.environ["RUNTURN_SPOOL"] + "/files/stop"): time.sleep(0.05)
os.ftruncate(1, 0)
os.write(1, b"lost..\\nafter\\n")
"""
# unshare as it fails, and as it works only with a user namespace.
WITHOUT = "echo 'unshare failed: Operation not permitted' >&2; exit 1"
UNPRIVILEGED = """case $* in *--user*) exec {unshare} "$@" ;; esac; {without}"""


@pytest.fixture(params=["unshare", "unshare --user", "bwrap", "sandbox"])
def contained(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A host for each way to make a namespace."""
    need_namespaces()
    folder = tmp_path / "programs"
    folder.mkdir()
    if request.param.startswith(("unshare --user", "bwrap")):
        user = request.param == "unshare --user"
        script = UNPRIVILEGED.format(unshare=need("unshare"), without=WITHOUT) if user else WITHOUT
        _shell_program(folder / "unshare", script)
    if request.param in ("bwrap", "sandbox"):
        need("bwrap")
    level = Isolation.SANDBOX if request.param == "sandbox" else Isolation.NAMESPACE
    containment = Containment(level, shown=(sys.prefix, sys.base_prefix))
    yield from opened(Lab(tmp_path / "lab", f"{folder}:/usr/bin:/bin", containment=containment))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Lab]:
    """A host whose agents run in sandboxes."""
    need_namespaces()
    need("bwrap")
    containment = Containment(Isolation.SANDBOX, shown=(sys.prefix, sys.base_prefix))
    yield from opened(Lab(tmp_path / "lab", "/usr/bin:/bin", containment=containment))


@pytest.fixture
def unable(tmp_path: Path) -> Iterator[Lab]:
    """A host that can make no namespace."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("unshare", "bwrap"):
        _shell_program(folder / name, WITHOUT.replace("unshare", name))
    yield from opened(
        Lab(tmp_path / "lab", f"{folder}:/usr/bin:/bin", containment=Containment(Isolation.NAMESPACE))
    )


async def test_daemon_without_environment_ends_with_its_agent(contained: Lab) -> None:
    pipe = _Pipe(contained.workspace / "pipe")
    agent = contained.sh(f"{DAEMON}; sleep 0.3; exit 7", str(pipe.path))
    assert await contained.run(agent) == (b"", Exit(7, "exit"))
    assert pipe.is_over()


async def test_chain_of_processes_ends_with_its_agent(contained: Lab) -> None:
    pipe = _Pipe(contained.workspace / "pipe")
    async with contained.follow(contained.spool(), contained.python(CHAIN, str(pipe.path))) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        await drain(turn)
    assert pipe.is_over()


async def test_agent_sees_no_process_but_its_own(contained: Lab) -> None:
    output, _ = await contained.run(contained.sh("cd /proc && echo [0-9]*; kill -0 $PPID && echo $PPID"))
    seen, parent = output.decode().splitlines()
    assert parent == "1"
    assert len(seen.split()) == 2


async def test_agent_that_kills_all_it_can_ends_its_own_turn_only(contained: Lab) -> None:
    killer = contained.sh("(sleep 600; echo alive) & kill -KILL -1; wait; exit 5")
    assert await contained.run(killer) == (b"", Exit(5, "exit"))


@pytest.mark.parametrize("victim", ["wall", "init"])
async def test_turn_ends_with_what_contains_it(contained: Lab, victim: str) -> None:
    pipe, spool = _Pipe(contained.workspace / "pipe"), contained.spool()
    async with contained.follow(spool, contained.sh(f"{DAEMON}; echo ready; sleep 600", str(pipe.path))) as turn:
        await read_until(turn, b"ready")
        wall = contained.pid(spool, "agent")
        os.kill(wall if victim == "wall" else _first_child(wall), signal.SIGKILL)
        await drain(turn)
        assert turn.exit in (Exit(137, "exit"), Exit(1, "exit"))  # unshare cannot die of SIGKILL itself
    assert pipe.is_over()
    await contained.nothing_left(spool)


async def test_ladder_reaches_the_agent_and_not_its_init(contained: Lab) -> None:
    agent = contained.sh("trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.1; done")
    async with contained.follow(contained.spool(), agent) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        assert await drain(turn) == b"interrupted\n"
        assert turn.exit == Exit(3, "cancel")


async def test_what_an_agent_leaves_may_finish_on_term(contained: Lab) -> None:
    done = contained.workspace / "done"
    left = f"(trap 'echo done >{done}; exit' TERM; echo ready; while :; do sleep 0.1; done) & sleep 0.3"
    await contained.run(contained.sh(left))
    assert done.read_text() == "done\n"


async def test_host_that_cannot_isolate_is_refused_with_the_reason(unable: Lab) -> None:
    with pytest.raises(SpawnRefused, match="Operation not permitted") as refused:
        await unable.run(unable.sh("echo ran"))
    assert refused.value.code == "isolation_unavailable"
    assert not list(unable.root.glob("*"))


async def test_host_that_cannot_isolate_runs_what_need_not_be(unable: Lab) -> None:
    assert await unable.run(unable.sh("echo ran"), containment=Containment()) == (b"ran\n", Exit(0, "exit"))


async def test_sandbox_shows_the_system_the_workspace_and_the_agents_own_files_only(sandbox: Lab) -> None:
    home, other = sandbox.home, sandbox.folder / "other"
    for file in (home / ".ssh/key", home / ".agent/login", other / "file", sandbox.workspace / "code"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{file.name}\n")
    look = """
        cd "$1"
        ls -A . .agent
        cat .ssh/key "$2/file" 2>/dev/null
        cat .agent/login "$OLDPWD/code"
    """
    agent = sandbox.sh(look, str(home), str(other), state=(".agent", ".none"))
    output, end = await sandbox.run(agent)
    assert output.decode().split("\n") == [".:", ".agent", "", ".agent:", "login", "login", "code", ""]
    assert end.code == 0


async def test_sandbox_lets_its_agent_write_to_the_workspace_and_its_own_files_only(sandbox: Lab) -> None:
    (sandbox.home / ".agent").mkdir()
    write = """
        for file in here "$HOME/.agent/x" /tmp/x "$HOME/x" "$RUNTURN_SPOOL/files/x" /usr/x /etc/x; do
            touch "$file" 2>/dev/null && echo "$file"
        done
    """
    output, _ = await sandbox.run(sandbox.sh(write, state=(".agent",)))
    assert output.decode().split() == ["here", f"{sandbox.home}/.agent/x", "/tmp/x", f"{sandbox.home}/x"]
    assert (sandbox.workspace / "here").exists()
    assert (sandbox.home / ".agent/x").exists()
    assert not (sandbox.home / "x").exists()  # what it writes elsewhere in its home is gone with it


async def test_sandbox_shows_its_own_files_of_the_spool_and_no_other(sandbox: Lab) -> None:
    first = sandbox.spool()
    await sandbox.run(sandbox.sh("true", files={"a": b"1"}), first)
    look = f'cat "$1/a"; ls "$RUNTURN_SPOOL"; ls "{first.path}"'
    output, _ = await sandbox.run(sandbox.sh(look, FILES, files={"a": b"2"}))
    assert output == b"2files\n"


async def test_no_tool_in_a_sandbox_shortens_the_output(sandbox: Lab) -> None:
    spool = sandbox.spool()
    async with sandbox.follow(spool, sandbox.python(SHORTEN)) as turn:
        await read_until(turn, b"before")
        await turn.soft_stop(b"go on")
        # A copier that sees the file shortened begins anew.
        assert await drain(turn) in (b"after\n", b"lost..\nafter\n")
    await sandbox.nothing_left(spool)


async def test_sandbox_shows_what_the_operator_adds(tmp_path: Path) -> None:
    need("bwrap")
    for name in ("tools", "cache it's"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"{name}\n")
    tools, cache = str(tmp_path / "tools"), str(tmp_path / "cache it's")
    added = Containment.of(Isolation.SANDBOX, (tools, f"{cache}:rw"))
    for lab in opened(Lab(tmp_path / "lab", "/usr/bin:/bin", containment=added)):
        write = 'for each; do cat "$each/file"; echo x >"$each/new"; done 2>/dev/null'
        output, _ = await lab.run(lab.sh(write, tools, cache))
        assert output.decode() == "tools\ncache it's\n"
    assert [(tmp_path / name / "new").exists() for name in ("tools", "cache it's")] == [False, True]


async def test_path_that_a_sandbox_lacks_is_named(tmp_path: Path) -> None:
    need("bwrap")
    added = Containment.of(Isolation.SANDBOX, ("/no/such/path",))
    for lab in opened(Lab(tmp_path / "lab", "/usr/bin:/bin", containment=added)):
        with pytest.raises(SpawnRefused, match="/no/such/path"):
            await lab.run(lab.sh("echo ran"))


async def test_workspace_that_contains_the_home_is_refused(sandbox: Lab) -> None:
    with pytest.raises(SpawnRefused, match="contains the home"):
        await sandbox.run(sandbox.sh("echo ran", cwd=str(sandbox.folder)))


async def test_program_below_the_home_is_shown(sandbox: Lab) -> None:
    package = sandbox.home / "lib/node_modules/agent"
    package.mkdir(parents=True)
    _shell_program(
        package / "cli", 'cat "${0%/*}/part" 2>/dev/null || cat "$(dirname "$(readlink -f "$0")")/part"'
    )
    (package / "part").write_text("whole\n")
    (sandbox.home / "bin").mkdir()
    (sandbox.home / "bin/agent").symlink_to("../lib/node_modules/agent/cli")
    output, _ = await sandbox.run(sandbox.command(str(sandbox.home / "bin/agent")))
    assert output == b"whole\n"


async def test_root_has_no_privileges_in_a_sandbox(sandbox: Lab) -> None:
    need_root()
    output, _ = await sandbox.run(
        sandbox.sh("grep CapEff /proc/self/status; mount -o remount,rw /usr 2>/dev/null || echo no")
    )
    assert output.decode().split() == ["CapEff:", "0000000000000000", "no"]


# Connects to a port; prints what happened.
CONNECT = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()
    print("reached")
except OSError as error:
    print(type(error).__name__)
"""
# Does the same with a port and an abstract socket of its own.
OWN = """
import socket
for family, place in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "\\0own")):
    with socket.socket(family) as server, socket.socket(family) as client:
        server.bind(place); server.listen(); client.connect(server.getsockname())
print("reached")
"""


@pytest.mark.parametrize(
    ("network", "seen"), [(Network.FULL, "reached"), (Network.NONE, "ConnectionRefusedError")]
)
async def test_sandbox_reaches_the_network_it_is_given(sandbox: Lab, network: Network, seen: str) -> None:
    given = replace(sandbox.containment, network=network)
    with socket.create_server(("127.0.0.1", 0)) as server:
        agent = sandbox.python(CONNECT, str(server.getsockname()[1]))
        assert await sandbox.run(agent, containment=given) == (f"{seen}\n".encode(), Exit(0, "exit"))
    assert await sandbox.run(sandbox.python(OWN), containment=given) == (b"reached\n", Exit(0, "exit"))


async def test_sandbox_without_a_network_sees_no_abstract_socket_of_the_host(sandbox: Lab) -> None:
    name = f"runturn-{sandbox.spool().id}"
    look = f"""grep -c '@{name}' /proc/net/unix"""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        apart = replace(sandbox.containment, network=Network.NONE)
        assert (await sandbox.run(sandbox.sh(look)))[0] == b"1\n"
        assert (await sandbox.run(sandbox.sh(look), containment=apart))[0] == b"0\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("whose", ["the turn's", "the host's"])
@pytest.mark.parametrize(
    ("level", "wall"),
    [(Isolation.SANDBOX, "bwrap"), (Isolation.NAMESPACE, "unshare")],
    ids=["sandbox", "namespace"],
)
async def test_variables_of_the_loader_are_obeyed_inside_only(
    tmp_path: Path, search_paths: Callable[[str], str], shell: str, whose: str, level: Isolation, wall: str
) -> None:
    """As `LD_PRELOAD` would be, with a library that an earlier agent has left in the workspace."""
    need_namespaces()
    written = tmp_path / "it's written"
    loader = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(written), "LD_WARN": ""}
    programs = search_paths(shell)
    path = f"{programs}:{Path(need('bwrap')).parent}"
    env = {"PLAIN": "x"} | (loader if whose == "the turn's" else {})
    script = 'printf "%s\\n" "$LD_DEBUG_OUTPUT" "${LD_WARN-unset}" "$PLAIN"; env | grep -c RUNTURN_HELD'
    host = Lab(
        tmp_path / "lab",
        path,
        containment=Containment(level, shown=(programs.split(":")[0],)),
        variables=loader if whose == "the host's" else {},
    )
    with contextmanager(opened)(host) as lab:
        agent, spool = lab.sh(script, env=env), lab.spool()
        expected = f"{written}\n\nx\n0\n".encode()
        async with lab.follow(spool, agent) as turn:
            assert (await drain(turn)).endswith(expected)
            checked = await run_check(
                lab.host, spool, 1, agent, script, env, containment=lab.containment, timeout_s=60.0, tail=1000
            )
        assert checked.stdout.endswith(expected)
    assert [file for file in tmp_path.glob("it's written*") if f"/{wall} ".encode() in file.read_bytes()] == []


async def test_network_that_a_host_cannot_take_away_is_named(tmp_path: Path) -> None:
    script = """case $* in *--unshare-net*) echo "bwrap: loopback: Operation not permitted" >&2; exit 1 ;; esac"""
    with _other_bwrap(tmp_path, f'{script}; exec {need("bwrap")} "$@"') as lab:
        given = replace(lab.containment, network=Network.NONE)
        with pytest.raises(SpawnRefused, match="loopback: Operation not permitted") as refused:
            await lab.run(lab.sh("echo ran"), containment=given)
        assert refused.value.code == "isolation_unavailable"
        assert (await lab.run(lab.sh("echo ran")))[0] == b"ran\n"


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("echo 'bwrap: out of order' >&2; exit 1", "bwrap: out of order"),
        ("exit 1", "makes no namespace, and does not say why"),
        ("kill -KILL $$", "Killed|makes no namespace, and does not say why"),
        ('while [ $1 != sh ]; do shift; done; exec "$@"', "makes no namespace, and does not say why"),
    ],
)
async def test_broken_bubblewrap_is_named(tmp_path: Path, script: str, named: str) -> None:
    with _other_bwrap(tmp_path, script) as lab:
        with pytest.raises(SpawnRefused, match=named) as refused:
            await lab.run(lab.sh("echo ran"))
        assert refused.value.code == "isolation_unavailable"
        assert not list(lab.root.glob("*"))


async def test_path_that_bubblewrap_cannot_show_is_named(sandbox: Lab) -> None:
    """It is below a link in another one, which leads out of the sandbox."""
    (sandbox.folder / "tools").mkdir()
    (sandbox.folder / "elsewhere/part").mkdir(parents=True)
    (sandbox.folder / "tools/link").symlink_to(sandbox.folder / "elsewhere")
    shown = (f"{sandbox.folder}/tools", f"{sandbox.folder}/tools/link/part")
    with pytest.raises(SpawnRefused, match=f"bwrap: .*{sandbox.folder}/tools/link") as refused:
        await sandbox.run(sandbox.sh("echo ran"), containment=replace(sandbox.containment, shown=shown))
    assert refused.value.code == "isolation_unavailable"


async def test_workspace_that_vanished_is_named(sandbox: Lab) -> None:
    agent = sandbox.sh("echo ran")
    spool = sandbox.spool()
    await sandbox.run(agent, spool)
    shutil.rmtree(sandbox.workspace)
    with pytest.raises(SpawnRefused) as refused:
        await sandbox.run(agent)
    assert refused.value.code == "workspace_missing"
    checked = await run_check(
        sandbox.host, spool, 1, agent, "echo ran", {}, containment=sandbox.containment, timeout_s=60.0, tail=1000
    )
    assert (checked.exit, checked.stdout.decode()) == (126, f"there is no workspace {sandbox.workspace}\n")


async def test_workspace_that_vanishes_at_the_last_moment_is_named(tmp_path: Path) -> None:
    last = f'case $* in */files*) rmdir "$GONE" ;; esac; exec {need("bwrap")} "$@"'
    with _other_bwrap(tmp_path, last) as lab:
        lab.host._host.env["GONE"] = str(lab.workspace)  # type: ignore[index]
        async with lab.follow(lab.spool(), lab.sh("echo ran")) as turn:
            assert await drain(turn) == b""
            assert turn.exit is not None
            assert turn.exit.code == 1
            assert f"{lab.workspace}: No such file".encode() in await turn.stderr_tail()


async def test_home_that_is_a_link_is_hidden_by_both_names(sandbox: Lab) -> None:
    moved = sandbox.folder / "disk/home"
    moved.parent.mkdir()
    sandbox.home.rename(moved)
    sandbox.home.symlink_to(moved)
    for file in (moved / ".ssh/key", moved / ".agent/login"):
        file.parent.mkdir()
        file.write_text(f"{file.name}\n")
    (moved / "work").mkdir()
    look = 'pwd; cat "$1/.ssh/key" ~/.ssh/key; cat ~/.agent/login; touch ~/.agent/new here; ls -A ~'
    agent = sandbox.sh(look, str(moved), state=(".agent",), cwd=str(sandbox.home / "work"))
    output, _ = await sandbox.run(agent)
    assert output.decode().split() == [f"{sandbox.home}/work", "login", ".agent", "work"]
    assert (moved / ".agent/new").exists()
    assert (moved / "work/here").exists()


async def test_full_tmp_of_a_sandbox_is_the_tools_own_trouble(sandbox: Lab) -> None:
    limited = replace(sandbox.containment, max_memory=64 << 20)
    fill = "head -c 100M /dev/zero >/tmp/full; echo $?; rm /tmp/full; echo room >/tmp/again; echo done"
    async with sandbox.follow(sandbox.spool(), sandbox.sh(fill), containment=limited) as turn:
        assert await drain(turn) == b"1\ndone\n"
        assert turn.exit == Exit(0, "exit")
        assert b"No space left on device" in await turn.stderr_tail()


def test_init_outside_a_namespace_signals_nobody() -> None:
    script = f'{library("containment")}\nexec sh -c "$init" init true'
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 126


# Takes that many mebibytes.
HUNGRY = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); time.sleep(600)"
BREEDING = "for i in $(seq 60); do sleep 600 & done; echo bred; wait"


@pytest.mark.parametrize("shared", [False, True])
async def test_turn_over_its_memory_is_ended(contained: Lab, shared: bool) -> None:
    limited = replace(contained.containment, max_memory=200 << 20)
    children = f"for n in 1 2 3 4 5; do '{sys.executable}' -ISc '{HUNGRY}' 60 & done; wait"
    agent = contained.sh(children) if shared else contained.python(HUNGRY, "400")
    async with contained.follow(contained.spool(), agent, containment=limited) as turn:
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "memory"


async def test_turn_over_its_number_of_processes_is_ended(contained: Lab) -> None:
    limited = replace(contained.containment, max_processes=40)
    async with contained.follow(contained.spool(), contained.sh(BREEDING), containment=limited) as turn:
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "processes"


@pytest.mark.parametrize(
    ("limit", "command"),
    [("memory", f"'{sys.executable}' -ISc '{HUNGRY}' 400; true"), ("processes", BREEDING)],
    ids=["memory", "processes"],
)
async def test_command_over_a_limit_is_ended(contained: Lab, limit: str, command: str) -> None:
    limited = replace(contained.containment, max_memory=200 << 20, max_processes=40)
    spool, agent = contained.spool(), contained.sh("true")
    await contained.run(agent, spool)
    over = await run_check(
        contained.host, spool, 1, agent, command, {}, containment=limited, timeout_s=60, tail=1000
    )
    assert over.exit != 0
    assert over.stdout.endswith(f"It exceeded max_{limit}.\n".encode())


# As if it were another process, a file that leads to it and has the turn's mark, or none.
FORGED_AGENTS = {
    "process": 'echo "$1 contained" >"$RUNTURN_SPOOL/agent"',
    "path": """
        evil=$PWD/evil; mkdir -p "$evil/task" "$evil$evil"; echo "${1% *}" >"$evil$evil/children"
        echo "1 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0 0 $(($(ulimit -m) * 1024)) 0" >"$evil/stat"
        echo 'x a[$(touch RAN)] y' >"$evil/statm"
        echo "..$evil 77 contained" >"$RUNTURN_SPOOL/agent"
    """,
    "fifo": """
        evil=$PWD/evil; mkdir -p "$evil"; mkfifo "$evil/stat"; echo "..$evil 77 contained" >"$RUNTURN_SPOOL/agent"
    """,
    "none": 'echo x >"$RUNTURN_SPOOL/agent"',
}


@pytest.mark.parametrize("forgery", FORGED_AGENTS)
async def test_forged_agent_evades_no_limit_and_ends_nobody_else(contained: Lab, forgery: str) -> None:
    limited = replace(contained.containment, max_processes=40)
    with subprocess.Popen(["/bin/sh", "-c", "for i in $(seq 50); do sleep 600 & done; wait"]) as others:
        signature = f"{others.pid} {_started_at(others.pid)}"
        script = FORGED_AGENTS[forgery].replace("RAN", str(contained.workspace / "ran"))
        agent = contained.sh(f"{{ {script}\n}} 2>&1; {BREEDING}", signature)
        async with contained.follow(contained.spool(), agent, containment=limited) as turn:
            await drain(turn)
            assert turn.exit is not None
            assert (turn.exit.code, turn.exit.reason) == (137, "processes")
        assert others.poll() is None
        for each in psutil.Process(others.pid).children():
            each.kill()
    assert not (contained.workspace / "ran").exists()


@pytest.mark.parametrize("forgery", FORGED_AGENTS)
async def test_forged_agent_keeps_no_turn_from_its_lease(contained: Lab, forgery: str) -> None:
    signature = f"{os.getpid()} {_started_at(os.getpid())}"
    script = FORGED_AGENTS[forgery].replace("RAN", str(contained.workspace / "ran"))
    agent, spool = contained.sh(f"{{ {script}\n}} 2>&1; echo ready; sleep 600", signature), contained.spool()
    async with contained.follow(spool, agent, lease=Lease(2, 0.2)) as turn:
        await read_until(turn, b"ready")
    await eventually(lambda: contained.state(spool, "end"))
    assert contained.state(spool, "end")[1] == "lease"
    await contained.nothing_left(spool)
    assert not (contained.workspace / "ran").exists()


SHARE = """
import os, time
first, held = os.getpid(), bytearray(100 << 20)
for _ in range(3): os.fork()
time.sleep(5)
if os.getpid() == first: print("done")
"""


async def test_memory_that_processes_share_counts_once(contained: Lab) -> None:
    limited = replace(contained.containment, max_memory=200 << 20)
    assert await contained.run(contained.python(SHARE), containment=limited) == (b"done\n", Exit(0, "exit"))


async def test_turn_within_its_limits_goes_on(contained: Lab) -> None:
    limited = replace(contained.containment, max_memory=1 << 30, max_processes=40)
    agent = contained.sh("sleep 3; echo done")
    assert await contained.run(agent, containment=limited) == (b"done\n", Exit(0, "exit"))


@contextmanager
def _other_bwrap(folder: Path, script: str) -> Iterator[Lab]:
    """A host that has this as its bubblewrap."""
    need_namespaces()
    (folder / "programs").mkdir()
    _shell_program(folder / "programs/bwrap", script)
    path = f"{folder}/programs:/usr/bin:/bin"
    yield from opened(Lab(folder / "lab", path, containment=Containment(Isolation.SANDBOX)))


class _Pipe:
    """A pipe that what is to end holds open for writing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def is_over(self) -> bool:
        """Whether it was opened, and nobody holds it any more."""
        os.set_blocking(self._end, True)
        while os.read(self._end, 65536):
            pass
        return True


def _started_at(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _shell_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
