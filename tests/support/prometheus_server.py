"""A real Prometheus, Debian's, on a free port and with separate data."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.support.needs import need
from tests.support.ssh.sessions import tie
from tests.support.waiting import until


class Prometheus:
    """A server on 127.0.0.1 that runs within its context."""

    def __init__(self, configuration: dict[str, Any], *flags: str) -> None:
        """`configuration` is the content of prometheus.yml; paths in it are relative to `folder`."""
        self._flags = flags
        self._program = need("prometheus")
        self._promtool = need("promtool")
        self.folder = Path(tempfile.mkdtemp(prefix="rt-prometheus-"))
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        self._data = self.folder / "data"
        self._log = self.folder / "log"
        self._url = ""

    def remember(self, openmetrics: str) -> None:
        """Load past samples, before the server starts."""
        past = self.folder / "past"
        past.write_text(openmetrics)
        command = [self._promtool, "tsdb", "create-blocks-from", "openmetrics", past, self._data]
        subprocess.run(command, check=True, capture_output=True)

    def __enter__(self) -> Self:
        command = [
            self._program,
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self._data}",
            "--web.listen-address=127.0.0.1:0",
            *self._flags,
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._tie = tie(self._process.pid)
        try:
            self._url = until(self._listens, f"Prometheus, whose log is {self._log}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression now; return the elements of the instant vector."""
        result = self.get("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def get(self, path: str, **parameters: str) -> Any:
        """Return the API's answer."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def _listens(self) -> str:
        log = self._log.read_text()
        assert self._process.poll() is None, log
        found = re.search(r'msg="Listening on" address=(\S+)', log)
        ready = found and "Server is ready to receive web requests" in log
        return f"http://{found[1]}" if found and ready else ""

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._tie.stdin is not None:
            self._tie.kill()
            self._tie.stdin.close()
            self._tie.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
