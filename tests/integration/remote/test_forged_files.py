"""Tools that write to their turn's spool: only the turn's own shells end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from adapters.command import Command
from remote.follower import Lease
from remote.shell import library
from remote.spool import Exit
from tests.support.needs import need
from tests.support.ssh.laboratory import Lab, drain, eventually, read_until
from tests.support.ssh.links import need_links

SHORT = Lease(lease_s=6, beat_s=0.2)

# Everything that a tool can learn from files and environments, tried as a secret.
FORGER = r"""
import os, pathlib, re, time
spool = pathlib.Path(os.environ["RUNTURN_SPOOL"])
print("ready", flush=True)
seen = set()
processes = [*pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline")]
for file in [*spool.iterdir(), *processes]:
    try:
        if file.is_file(): seen |= set(re.findall(rb"[A-Za-z0-9]{8,64}", file.read_bytes()))
    except OSError: pass
for word in {b"", *seen}:
    used = b'"cpu_ms":"-","memory_kib":"-","free_percent":"-"'
    for end in (b'"exit":"0","reason":"exit",' + used, b'"exit":"x","reason":5'):
        os.write(1, b'\n{"runturn":"%s",%s}\n' % (word, end))
for words in [b"0 exit marked", b"0 exit marked 1 1 -", b"0 exit unmarked x", b"junk"]:
    (spool / "end").write_bytes(words + b"\n")
    time.sleep(0.5)
print("still here", flush=True)
while not pathlib.Path("go").exists(): time.sleep(0.05)
raise SystemExit(3)
"""


async def test_no_tool_can_end_its_turn(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(FORGER), lease=SHORT) as turn:
        await read_until(turn, b"still here")
        assert turn.exit is None
        (any_lab.workspace / "go").touch()
        await drain(turn)
        assert turn.exit == Exit(3, "exit")
        await turn.remove_spool()
    await any_lab.nothing_left(spool)


async def test_seal_is_nowhere_while_the_turn_runs(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.sh("echo ready; sleep 300"), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        files = [*Path(spool.path).iterdir(), *_of_our_processes()]
        assert [file for file in files if spool.seal.encode() in _content(file)] == []
        await turn.cancel()
        await drain(turn)


@pytest.mark.parametrize("reason", ['no"', "exit", "a b c", "\\"])
async def test_forged_reason_loses_the_attempt(any_lab: Lab, reason: str) -> None:
    spool = any_lab.spool()
    agent = "import os, sys, time; open(os.environ['RUNTURN_SPOOL'] + '/reason', 'w').write(sys.argv[1] + '\\n')\n"
    _, end = await any_lab.run(any_lab.python(agent + "time.sleep(300)", reason), spool, lease=SHORT)
    assert end.reason == "lost"
    await any_lab.nothing_left(spool)


@pytest.mark.parametrize(
    "blow", ['rm -f "$RUNTURN_SPOOL/events"', 'rm -f "$RUNTURN_SPOOL"/end "$RUNTURN_SPOOL"/reason']
)
async def test_removed_files_do_not_keep_a_turn_from_its_end(any_lab: Lab, blow: str) -> None:
    spool = any_lab.spool()
    _, end = await any_lab.run(any_lab.sh(f"{blow}; sleep 1; exit 4"), spool, lease=SHORT)
    assert end == Exit(4, "exit")
    await any_lab.nothing_left(spool)


# What the supervisor does at its agent's end, next to a process that belongs to somebody else.
END = """
spool=$1 ladder="" seal=seal first_watcher=
sleep 1000 &
bystander=$!
exec 2>/dev/null
for name in supervisor watcher heartbeat reason end; do put "$name" ""; done
start_time 1
eval "put agent \"$2\""
end_agent
conclude 3
if start_time "$bystander"; then echo "it lives"; fi
kill -KILL "$bystander"
"""


@pytest.mark.parametrize("agent", ["1 $started_at", "1 1", "0 1", "junk"])
def test_forged_agent_ends_no_process_outside_its_turn(tmp_path: Path, agent: str) -> None:
    need_links()
    # Root's signals to process group 1 would reach the whole machine: here, they reach a PID namespace.
    scripts = ("state", "containment", "scope", "resources", "processes", "feeder", "watcher", "supervisor")
    script = library(*scripts) + END
    apart = [need("unshare"), "--pid", "--fork", "--mount-proc", "sh", "-c", 'sh "$@"; :', "first"]
    said = subprocess.run(
        [*apart, "-c", script, "sh", tmp_path, agent],
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    assert said.stdout == "it lives\n", said.stderr
    assert (tmp_path / "end").read_text().split()[0] == "3"


async def test_forged_peak_keeps_no_turn_from_its_end(any_lab: Lab) -> None:
    forgery = f'echo {"9" * 18} 999999 >"$RUNTURN_SPOOL/peak"; exit 3'
    spool = any_lab.spool()
    end = (await any_lab.run(any_lab.sh(forgery), spool))[1]
    assert (end, end.peak_memory_bytes, end.least_free_percent) == (Exit(3, "exit"), None, None)
    assert (await any_lab.run(None, spool))[1] == end, "it is told again"


async def test_forged_agent_neither_ends_others_nor_keeps_a_turn_from_its_end(
    any_lab: Lab, bystander: subprocess.Popen[bytes]
) -> None:
    spool = any_lab.spool()
    forgery = f'echo {_signature(bystander.pid)} >"$RUNTURN_SPOOL/agent"; echo ready; sleep 600'
    async with any_lab.follow(spool, any_lab.sh(forgery), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "cancel"
    await any_lab.nothing_left(spool)
    assert bystander.poll() is None


# Signs again and again as the watcher.
FORGE_WATCHER = """
echo ready
while [ ! -e go ]; do sleep 0.1; done
while :; do eval "$1"; sleep 0.1; done
"""
FORGERIES = {
    "bystander": 'echo BYSTANDER >"$RUNTURN_SPOOL/watcher"',
    "supervisor": 'cat "$RUNTURN_SPOOL/supervisor" >"$RUNTURN_SPOOL/watcher"',
    "path": 'echo ../FOLDER/process 123 >"$RUNTURN_SPOOL/watcher"',
}


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:
        yield process
        process.kill()


def forging(lab: Lab, forgery: str, bystander: subprocess.Popen[bytes]) -> Command:
    process = lab.folder / "process"
    process.mkdir()
    (process / "stat").write_text(f"1 (x) S {'0 ' * 18}123 0 0\n")
    words = FORGERIES[forgery].replace("FOLDER", str(lab.folder)).replace("BYSTANDER", _signature(bystander.pid))
    return lab.sh(FORGE_WATCHER, words)


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_forged_watcher_keeps_no_turn_from_its_lease(
    any_lab: Lab, bystander: subprocess.Popen[bytes], forgery: str
) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, forging(any_lab, forgery, bystander), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        any_lab.pid(spool, "watcher")
        (any_lab.workspace / "go").touch()
    await eventually(lambda: any_lab.state(spool, "end"))
    assert any_lab.state(spool, "end")[1] == "lease"
    await any_lab.nothing_left(spool)
    assert bystander.poll() is None


@pytest.mark.parametrize("forgery", ["bystander", "path"])
async def test_forged_watcher_keeps_no_follower_from_starting_one(
    any_lab: Lab, bystander: subprocess.Popen[bytes], forgery: str
) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, forging(any_lab, forgery, bystander), lease=SHORT) as turn:
        await read_until(turn, b"ready")
        watcher = psutil.Process(any_lab.pid(spool, "watcher"))
        (any_lab.workspace / "go").touch()
        await eventually(lambda: any_lab.state(spool, "watcher")[:1] != [str(watcher.pid)])
        for shell in [watcher, *watcher.children()]:
            with contextlib.suppress(ProcessLookupError):  # one may be a sleep that has ended
                os.kill(shell.pid, signal.SIGKILL)
        await turn.cancel()
        await drain(turn)
        assert turn.exit is not None
        assert turn.exit.reason == "cancel"
    await any_lab.nothing_left(spool)
    assert bystander.poll() is None


# A follower whose turn does not end, though it was cancelled and its watcher seems to work.
UNHEEDED = """
spool=$1 ladder="INT:10 TERM:50" cancelled_at= clock=1000
alive() { true; }
ours() { true; }
works() { true; }
uptime() { now=$clock; }
detach() { echo "$clock $1" >&3; }
watch_over
cancel
for clock in 1095 1096 1100; do watch_over; done
"""


def test_cancel_that_does_not_lead_to_an_end_starts_another_watcher(any_lab: Lab, tmp_path: Path) -> None:
    script = library("state", "watcher", "follower") + f"exec 3>&1\n{UNHEEDED}"
    said = subprocess.run(
        ["sh", "-c", script, "sh", tmp_path],
        env={"PATH": any_lab.path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout == "1096 watch_again\n", said.stderr


def _signature(pid: int) -> str:
    return f"{pid} {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"


def _of_our_processes() -> list[Path]:
    return [*Path("/proc").glob("[0-9]*/environ"), *Path("/proc").glob("[0-9]*/cmdline")]


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes() if file.is_file() else b""
    except OSError:
        return b""
