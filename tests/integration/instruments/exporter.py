"""celery-exporter, as `make test-tools` installs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import page
from tests.support.needs import missing
from tests.support.pages import answers
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

_PLACE = ROOT / ".celery-exporter"
_LOCK = Path(__file__).with_name("celery-exporter.lock")


def exporter_python() -> Path:
    """Return the Python that has it; without it, the test skips on a laptop and fails in CI."""
    installed = _PLACE / "installed"
    if installed.exists() and installed.read_bytes() == _LOCK.read_bytes():
        return _PLACE / "bin" / "python"
    return missing("celery-exporter is not installed; `make test-tools` does that")


@contextmanager
def exporter(test: str, broker_url: str, log: Path) -> Iterator[str]:
    """Run the command of docs/operating.md that this test runs; yields the address of the metrics."""
    (text,) = (block.text for block in page("docs/operating.md").blocks if test in block.tested_by)
    _, start, arguments = text.partition("celery-exporter/bin/python ")
    assert start
    assert "--port 9808" in arguments
    port = free_port()
    command = f'exec "$PYTHON" {arguments.replace("9808", str(port))}'
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "PYTHON": str(exporter_python()),
        "RUNTURN_BROKER_URL": broker_url,
    }
    with log.open("wb") as output:
        shell = ["sh", "-c", command]
        process = subprocess.Popen(shell, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        # It logs that it has started before it listens, and answers with errors before it has found its broker.
        until(lambda: answers(url) or process.poll() is not None, "the exporter")
        assert process.poll() is None, log.read_text()
        yield url
    finally:
        process.kill()
        process.wait()
