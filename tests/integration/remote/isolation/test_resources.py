"""CPU time and memory of a turn, as its end tells them; and the limit on its files."""

from __future__ import annotations

from dataclasses import replace

from adapters.isolation import Isolation
from remote.containment import Containment
from remote.follower import Lease
from remote.spool import Exit
from tests.support.needs import need, need_namespaces
from tests.support.ssh.laboratory import Lab, drain, eventually

BURN = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; "
# A child holds the memory: that of tools counts.
HOLD = """
import os, subprocess, sys, time
hold = "import sys, time; held = bytearray(100 << 20); open('held', 'w').close(); time.sleep(600)"
tool = subprocess.Popen([sys.executable, "-ISc", hold])
while not os.path.exists("go"): time.sleep(0.05)
tool.kill()
"""


async def test_cpu_of_the_agent_and_its_tools_is_told(any_lab: Lab) -> None:
    spool = any_lab.spool()
    idle = (await any_lab.run(any_lab.sh("true")))[1].cpu_ms
    busy = (await any_lab.run(any_lab.sh(f"({BURN}); {BURN}"), spool))[1].cpu_ms
    assert idle is not None and busy is not None
    assert busy > 3 * idle
    assert (await any_lab.run(None, spool))[1].cpu_ms == busy, "it is told again"


async def test_most_memory_that_was_seen_is_told(any_lab: Lab) -> None:
    spool = any_lab.spool()
    async with any_lab.follow(spool, any_lab.python(HOLD), lease=Lease(6, 0.2)) as turn:
        await eventually(lambda: _kibibytes(any_lab.state(spool, "peak")) > 100 * 2**10, "a look at it")
        (any_lab.workspace / "go").touch()
        await drain(turn)
        assert turn.exit is not None and turn.exit.peak_memory_bytes is not None
        assert 100 * 2**20 < turn.exit.peak_memory_bytes < 300 * 2**20


async def test_turn_that_nobody_looked_at_tells_no_memory(any_lab: Lab) -> None:
    assert (await any_lab.run(any_lab.sh("true")))[1].peak_memory_bytes is None


FILL = "trap 'echo told; exit 3' INT; head -c 20000000 /dev/zero >fill; echo full; while :; do sleep 0.2; done"


async def test_turn_whose_files_take_too_much_is_interrupted(any_lab: Lab) -> None:
    limited = replace(any_lab.containment, max_disk=8 << 20)
    async with any_lab.follow(any_lab.spool(), any_lab.sh(FILL), containment=limited) as turn:
        assert await drain(turn) == b"full\ntold\n"
        assert turn.exit == Exit(3, "disk")


async def test_sandbox_whose_files_take_too_much_is_interrupted(lab: Lab) -> None:
    need_namespaces()
    need("bwrap")
    limited = Containment(Isolation.SANDBOX, max_disk=8 << 20)
    async with lab.follow(lab.spool(), lab.sh(FILL), containment=limited) as turn:
        assert await drain(turn) == b"full\ntold\n"
        assert turn.exit == Exit(3, "disk")


async def test_turn_whose_files_fit_goes_on(lab: Lab) -> None:
    limited = Containment(max_disk=8 << 20)
    fits = lab.sh("head -c 4000000 /dev/zero >file; sleep 3; echo done")
    assert await lab.run(fits, containment=limited) == (b"done\n", Exit(0, "exit"))


def _kibibytes(words: list[str]) -> int:
    return int(words[0]) if words else 0
