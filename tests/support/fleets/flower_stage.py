"""Flower as `runturn flower` serves it, and a browser to look at it with."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.support.fleets.fleet import RUNTURN, WAIT_S, Fleet
from tests.support.needs import need
from tests.support.waiting import until

USER = "runturn"


class Answer(NamedTuple):
    """Of an HTTP server."""

    status: int
    headers: dict[str, str]
    body: bytes


class FlowerServer:
    """One `runturn flower` process."""

    def __init__(self, fleet: Fleet, environment: Mapping[str, str] | None = None) -> None:
        self.log = fleet.state.logs / "flower.log"
        with self.log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*RUNTURN, "flower", "--port", "0"],
                env={**fleet.environment, **(environment or {})},
                stdout=stderr,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
            )
        self._file = fleet.state.root / "flower-password"

    def wait_ready(self) -> None:
        """Until it answers."""
        until(lambda: b"flower is ready" in self.log.read_bytes() or self.process.poll() is not None, "Flower")
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r'"url": "(http://[^"]+)"', self.log.read_text())
        assert found
        self.url = found[1]

    @property
    def password(self) -> str:
        """Of its user."""
        return self._file.read_text().strip()

    @property
    def url_with_login(self) -> str:
        """For a browser."""
        return self.url.replace("://", f"://{USER}:{self.password}@")

    def ask(self, path: str, method: str = "GET", *, login: str | None = None, **fields: str) -> Answer:
        """Send a request; `login` is USER:PASSWORD, its own by default, and none if it is empty."""
        given = f"{USER}:{self.password}" if login is None else login
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=WAIT_S)
        headers = {"Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"} if given else {}
        if fields:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, urlencode(fields) if fields else None, headers)
        response = connection.getresponse()
        answer = Answer(response.status, dict(response.getheaders()), response.read())
        connection.close()
        return answer

    def tasks(self) -> dict[str, dict[str, Any]]:
        """All that it knows of, by id."""
        known: dict[str, dict[str, Any]] = json.loads(self.ask("/api/tasks").body)
        return known

    def stop(self) -> int:
        """Tell it to go."""
        self.process.terminate()
        return self.process.wait(WAIT_S)


@contextmanager
def flower(fleet: Fleet, environment: Mapping[str, str] | None = None) -> Iterator[FlowerServer]:
    """A Flower that is ready."""
    server = FlowerServer(fleet, environment)
    try:
        server.wait_ready()
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@contextmanager
def chromium(folder: Path) -> Iterator[webdriver.Chrome]:
    """A headless browser."""
    options = Options()
    options.binary_location = need("chromium")
    folder.mkdir()
    for argument in (
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--window-size=1600,1000",
        f"--user-data-dir={folder}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(need("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(folder, ignore_errors=True)
