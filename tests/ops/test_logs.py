"""What leaves a process through its log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ops.logs import configure_logging
from ops.redaction import Redactor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_are_json_away_from_a_terminal() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    structlog.get_logger("workers.run").info("turn settled", turn_id="t1", tokens=12)
    logging.getLogger("celery").warning("lost %s", "broker", extra={"host": "h"})
    first, second = written(stream)
    assert first | {"timestamp": ""} == {
        "event": "turn settled",
        "turn_id": "t1",
        "tokens": 12,
        "level": "info",
        "logger": "workers.run",
        "timestamp": "",
    }
    assert (second["event"], second["level"], second["logger"], second["host"]) == (
        "lost broker",
        "warning",
        "celery",
        "h",
    )


def test_people_get_text() -> None:
    configure_logging(Redactor({}), stream := Terminal())
    structlog.get_logger().info("turn settled", turn_id="t1")
    assert "turn settled" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["json", "terminal"])
def test_secrets_are_in_no_line(stream: io.StringIO) -> None:
    secret = 'hunter22"\nx'
    configure_logging(Redactor({"TOKEN": secret}), stream)
    log = structlog.get_logger("a")
    log.info("sent " + secret, argument=secret, nested={"deep": [secret]})
    logging.getLogger("b").error("with %s", secret)
    log.error("failed", exc_info=ValueError(secret))
    text = stream.getvalue()
    assert "hunter22" not in text
    assert "[redacted:TOKEN]" in text
    assert "ValueError" in text


def test_bound_context_is_in_every_line() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    with structlog.contextvars.bound_contextvars(turn_id="t1"):
        structlog.get_logger().info("one")
        logging.getLogger("x").info("two")
    assert [line["turn_id"] for line in written(stream)] == ["t1", "t1"]


def test_debug_is_left_out() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    structlog.get_logger().debug("noise")
    assert stream.getvalue() == ""


def test_key_that_is_not_known_here_is_redacted_by_its_looks() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    key = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    structlog.get_logger("x").warning("refused", said=f'remote said:\n"{key}"')
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["said"] == 'remote said:\n"[redacted:key]"'
