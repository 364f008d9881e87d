from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from remote.errors import HostUnreachable
from remote.local import LocalHost
from remote.run import run_script
from remote.shell import BOOT, program
from tests.support.needs import need
from tests.support.ssh.laboratory import Lab


async def test_a_shell_sees_only_the_environment_it_was_given(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SECRET", "x")
    output = await run_script(lab.host, "env")
    names = {line.split(b"=")[0] for line in output.stdout.splitlines()}
    assert names <= {b"PATH", b"HOME", b"TMPDIR", b"PWD", b"OLDPWD", b"SHLVL", b"_"}


async def test_a_machine_without_a_shell_is_unreachable() -> None:
    with pytest.raises(HostUnreachable, match="no shell"):
        await LocalHost(env={"PATH": "/nowhere"}).open_channel()


async def test_a_shell_has_a_session_of_its_own_so_that_ctrl_c_misses_it(lab: Lab) -> None:
    output = await run_script(lab.host, "cut -d' ' -f6 /proc/self/stat")
    assert int(output.stdout) != os.getsid(0)


async def test_closing_a_shell_that_does_not_listen_takes_a_bounded_time(lab: Lab) -> None:
    channel = await lab.host.open_channel()
    await channel.write(program("", "echo begun; trap '' TERM HUP; sleep 60"))
    assert await channel.read() == b"begun\n"
    begun = time.monotonic()
    await channel.close()
    await channel.close()
    assert time.monotonic() - begun < 30
    assert await channel.read() == b""


async def test_a_reader_misses_nothing_of_a_channel_that_is_closed_beside_it(lab: Lab) -> None:
    for _ in range(5):
        channel = await lab.host.open_channel()
        await channel.write(program("", "exec seq 1 1000000"))
        received = await channel.read()
        closing = asyncio.create_task(channel.close())
        while chunk := await channel.read():
            received += chunk
        await closing
        numbers = received.split(b"\n")[:-1]
        assert numbers == [b"%d" % number for number in range(1, len(numbers) + 1)]


async def test_writing_to_a_shell_that_has_gone_is_unreachable(lab: Lab) -> None:
    channel = await lab.host.open_channel()
    lab.host.cut()
    with pytest.raises(HostUnreachable, match="the shell has exited"):
        for _ in range(100):
            await channel.write(b"\n" * 100_000)
            await asyncio.sleep(0.01)
    await channel.close()


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox sh"])
def test_the_boot_command_means_the_same_to_every_login_shell(shell: str) -> None:
    line = program("", 'printf "%s|"', ["a'b", "c\\n", "$d", "e\nf", "!g"])
    name, *words = shell.split()
    output = subprocess.run(
        [need(name), *words, "-c", BOOT], input=line + b"rest", capture_output=True, check=True
    )
    assert output.stdout == b"a'b|c\\n|$d|e\nf|!g|"


def test_the_rooms_import_nothing_but_the_adapters() -> None:
    script = "import sys, remote.host_queries, remote.follower, remote.local; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"workers", "ops", "asyncssh", "celery"} & set(loaded)
