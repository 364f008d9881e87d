"""A subprocess that outlives its event loop disturbs no later test."""

from __future__ import annotations

import asyncio
import gc
from asyncio.subprocess import PIPE, Process

import psutil

from tests.support.processes import gone
from tests.support.waiting import until


def test_transport_that_outlives_its_loop_is_collected_in_silence() -> None:
    process = psutil.Process(_left_running())
    gc.collect()  # pytest makes an error of what is raised here
    process.kill()
    until(lambda: gone(process), "its end")


def _left_running() -> int:
    loop = asyncio.new_event_loop()
    process: Process = loop.run_until_complete(asyncio.create_subprocess_exec("sleep", "60", stdout=PIPE))
    loop.close()
    return process.pid
