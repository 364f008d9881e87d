"""CPU time and memory of a turn, as its end tells them."""

from __future__ import annotations

from remote.follower import Lease
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


def _kibibytes(words: list[str]) -> int:
    return int(words[0]) if words else 0
