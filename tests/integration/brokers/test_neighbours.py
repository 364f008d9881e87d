"""Another application's tasks on the same Redis run as if there were no runturn."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from celery import Celery
from kombu.utils.json import dumps

from adapters.protocol.result import Status
from tests.support.fleets import foreign_app
from tests.support.fleets.fleet import Fleet
from tests.support.fleets.impatient import IMPATIENT, TIMEOUT_S
from tests.support.waiting import lines_of, until
from workers.brokers.redis_transport import UNACKED, UNACKED_INDEX

COUNTDOWN_S = 12.0  # workers look every ten seconds
SENT = {
    **{f"late {number}": {"acks_late": True} for number in range(2)},
    **{f"prefetched {priority}": {"priority": priority} for priority in (0, 3, 6, 9)},
    **{f"later {number}": {"countdown": COUNTDOWN_S} for number in range(2)},
}


@contextmanager
def foreign_worker(fleet: Fleet, folder: Path) -> Iterator[None]:
    """With Celery's own settings, so that it prefetches eight tasks for its two threads."""
    environment = {**fleet.environment, "FOREIGN_BROKER": fleet.broker.url, "FOREIGN_NOTES": str(folder)}
    arguments = ("-A", foreign_app.__name__, "worker", "--pool", "threads", "--concurrency", "2")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *arguments], env=environment, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_every_foreign_task_runs_once(tmp_path: Path, recording: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    with Fleet(tmp_path) as fleet, redis.Redis(unix_socket_path=str(fleet.broker.socket)) as client:
        task = Celery("foreign", broker=fleet.broker.url).signature("foreign.note")
        for name, options in SENT.items():
            task.clone(args=(name,)).apply_async(**options)
        with foreign_worker(fleet, folder):
            until(
                lambda: len(lines_of(folder / "started")) == 2 and not _queued(client),
                "the foreign worker to have all its tasks in hand",
            )
            fleet.start_worker(prefix=(sys.executable, "-c", IMPATIENT))
            assert fleet.run(fleet.recorded(recording)).status is Status.COMPLETED
            newest = client.zrange("unacked_index", -1, -1, withscores=True)[0][1]
            until(lambda: time.time() > newest + TIMEOUT_S, "the tasks to be overdue, to such a worker")
            _await_a_look(client)
            (folder / "released").touch()
            until(lambda: set(lines_of(folder / "started")) == SENT.keys(), "all foreign tasks to run")
            until(lambda: not client.hlen("unacked") and not _queued(client), "nothing to be left of them")
        assert Counter(lines_of(folder / "started")) == Counter(SENT.keys())


def _await_a_look(client: redis.Redis) -> None:
    """Until the worker has put what is overdue back into its queue."""
    message = {"headers": {}, "properties": {"delivery_info": {}}}
    client.hset(UNACKED, "tag", dumps(["somewhere", message]))
    client.zadd(UNACKED_INDEX, {"tag": 0})
    until(lambda: client.llen("somewhere"), "the worker to look")


def _queued(client: redis.Redis) -> int:
    return sum(client.llen(key) for key in client.scan_iter("celery*") if client.type(key) == b"list")
