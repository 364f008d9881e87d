"""SIGTERM and Ctrl-C from the first moment on: services leave in order with 0, whatever they are doing."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet
from tests.support.fleets.rabbit_fleet import RabbitFleet
from tests.support.processes import handles
from tests.support.waiting import until

SIGNALS = (signal.SIGTERM, signal.SIGINT)
both = pytest.mark.parametrize("number", SIGNALS)
POINTS = {
    "first import": ("click", "<module>"),
    "import of the command": ("workers.cli.worker", "<module>"),
    "import of a library": ("celery.app.base", "<module>"),
    "creation of a class": ("functools", "cached_property.__set_name__"),  # Python 3.11 wraps what is raised there
    "settings": ("ops.settings.loading", "load_settings"),
    "ledger": ("workers.cli.context", "Context._open_ledger"),
    "application": ("workers.configured_app", "configured_app"),
    "connecting": ("kombu.connection", "Connection.ensure_connection"),
    "building": ("workers.worker.bootstrap", "build_worker"),
    "serving": ("ops.status_server", "StatusServer.__init__"),
    "Celery's worker": ("celery.worker.worker", "WorkController.__init__"),
    "runtime": ("workers.worker.runtime", "Runtime.__enter__"),
    "before Celery's handlers": ("celery.apps.worker", "Worker.install_platform_tweaks"),
    "between Celery's handlers": ("celery.apps.worker", "_shutdown_handler"),
    "after Celery's handlers": ("celery.apps.worker", "install_cry_handler"),
    "pool": ("workers.worker.pool", "TurnPool.on_start"),
    "before consumption": ("celery.worker.consumer.tasks", "Tasks.start"),
    "consumption": ("celery.worker.loops", "asynloop"),
}


def _signalled(
    fleet: Fleet, command: str, number: int, point: tuple[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command that gets the signal at that point, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tests.support.fleets.signalled", command],
        env={**fleet.environment, "SIGNALLED": "/".join((str(int(number)), *point))},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def still(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet on each kind of broker, whose workers do not get far."""
    root = tmp_path_factory.mktemp("still")
    with ExitStack() as stack:
        if request.param == "rabbitmq":
            yield stack.enter_context(RabbitFleet(root, request.getfixturevalue("rabbitmq").new_vhost()))
        else:
            yield stack.enter_context(Fleet(root))


@pytest.mark.parametrize(("point", "number"), list(zip(POINTS, itertools.cycle(SIGNALS), strict=False)))
def test_worker_leaves_in_order_wherever_its_boot_is(still: Fleet, number: int, point: str) -> None:
    said = _signalled(still, "worker", number, POINTS[point])
    assert said.returncode == 0, said.stderr
    assert "Traceback" not in said.stderr
    assert "worker is ready" not in said.stderr


@both
@pytest.mark.parametrize("point", ["first import", "broker", "broker that starts", "building", "pool"])
def test_up_leaves_in_order_and_leaves_no_broker(fleet: Fleet, number: int, point: str) -> None:
    own = {
        "broker": ("workers.brokers.embedded", "EmbeddedBroker.ensure"),
        "broker that starts": ("subprocess", "Popen.__init__"),
    }
    fleet.broker.stop()
    said = _signalled(fleet, "up", number, (POINTS | own)[point])
    assert said.returncode == 0, said.stderr
    assert "Traceback" not in said.stderr
    assert not fleet.broker.running()


@both
@pytest.mark.parametrize(
    ("command", "point"),
    [
        ("exporter", "first import"),
        ("exporter", "ledger"),
        ("exporter", "serving"),
        ("flower", "first import"),
        ("flower", "application"),
    ],
)
def test_other_services_leave_in_order_too(still: Fleet, number: int, command: str, point: str) -> None:
    said = _signalled(still, command, number, POINTS[point])
    assert (said.returncode, said.stdout) == (0, ""), said.stderr
    assert "Traceback" not in said.stderr


def test_cleanup_that_fails_on_the_way_out_changes_no_status() -> None:
    program = """if True:
        import os, signal
        from workers import stopping

        def command():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                raise OSError("the cleanup failed")

        raise SystemExit(stopping.run(command, "worker"))
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("program", ["os.kill(os.getpid(), signal.SIGTERM)", "Fussy() and None; time.sleep(30)"])
def test_interpreter_of_a_service_that_was_told_does_not_end_by_itself(program: str) -> None:
    # It frees what its threads need. One that had not begun by then crashed Python 3.11.2: exit status -11.
    program = f"""if True:
        import atexit, os, signal, time
        from workers import stopping

        class Fussy:  # ignores what is raised in its finalizer
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)

        def command():
            print("told", end="")
            {program}

        class Last:  # outlives the exit functions
            def __del__(self):
                os.write(1, b", and the interpreter ended")

        last = Last()
        atexit.register(print, ", then left", end="")
        raise SystemExit(stopping.run(command, "worker"))
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "told, then left", "")


@pytest.mark.parametrize("seed", range(6))
def test_worker_that_is_told_at_any_moment_leaves_with_0(fleet: Fleet, seed: int) -> None:
    log = fleet.state.logs / "worker.log"
    with log.open("wb") as stderr:
        worker = subprocess.Popen([*RUNTURN, "worker"], env=fleet.environment, stdout=stderr, stderr=stderr)
    with worker:
        until(lambda: handles(worker.pid, signal.SIGTERM), "its first moment")
        time.sleep(random.Random(seed).uniform(0, 3))  # the moment is what is being chosen
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
