"""What leaves a process through its log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ops.logs import _OURS, _TALKATIVE, attempt_logging, configure_logging, log_uncaught, turn_logging
from ops.redaction import Redactor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, *_OURS, *_TALKATIVE)]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    hooks = threading.excepthook, sys.excepthook
    yield
    for logger, handlers, level in before:
        logger.handlers, logger.level = handlers, level
    threading.excepthook, sys.excepthook = hooks
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_other_handlers_have_nothing_of_ours_with_a_secret_in_it() -> None:
    configure_logging(Redactor({"TOKEN": "s3cr3t-s3cr3t"}), io.StringIO())
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)  # as a monitor's is
    structlog.get_logger("workers.turn.run").warning("no answer", error="refused s3cr3t-s3cr3t", attempt=2)
    (record,) = records
    assert "s3cr3t" not in record.getMessage()
    assert "'attempt': 2" in record.getMessage()


def test_lines_are_json_away_from_a_terminal() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    structlog.get_logger("workers.turn.run").info("turn settled", turn_id="t1", tokens=12)
    logging.getLogger("celery").warning("lost %s", "broker", extra={"host": "h"})
    first, second = written(stream)
    assert first | {"timestamp": ""} == {
        "event": "turn settled",
        "turn_id": "t1",
        "tokens": 12,
        "level": "info",
        "logger": "workers.turn.run",
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


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ("debug", ["ours", "ours info", "theirs info", "error"]),
        ("info", ["ours info", "theirs info", "error"]),
        ("error", ["error"]),
    ],
)
def test_only_we_say_more_than_info(level: str, said: list[str]) -> None:
    configure_logging(Redactor({}), stream := io.StringIO(), level=level)
    structlog.get_logger("workers.turn.run").debug("ours")
    logging.getLogger("kombu.channel").debug("with the message and its prompt")
    structlog.get_logger("ops.ledger").info("ours info")
    logging.getLogger("kombu.channel").info("theirs info")
    logging.getLogger("asyncssh").info("a channel was opened")
    logging.getLogger("remote").error("error")
    assert [line["event"] for line in written(stream)] == said


def test_form_can_be_chosen() -> None:
    configure_logging(Redactor({}), terminal := Terminal(), form="json")
    structlog.get_logger().info("one")
    configure_logging(Redactor({}), stream := io.StringIO(), form="console")
    structlog.get_logger().info("two")
    assert terminal.getvalue().startswith("{")
    assert not stream.getvalue().startswith("{")


def test_what_kills_a_thread_and_what_python_warns_of_is_logged_without_secrets() -> None:
    configure_logging(Redactor({"TOKEN": "hunter22"}), stream := io.StringIO())
    log_uncaught()

    def die() -> None:
        raise ValueError("with hunter22")

    thread = threading.Thread(target=die, name="keeper")
    thread.start()
    thread.join()
    sys.excepthook(ValueError, ValueError("hunter22 again"), None)
    warnings.warn("hunter22, too", stacklevel=1)
    lines = written(stream)
    assert [line["level"] for line in lines] == ["critical", "critical", "warning"]
    assert lines[0]["thread"] == "keeper"
    assert all("[redacted:TOKEN]" in str(line) for line in lines)
    assert "hunter22" not in stream.getvalue()


def test_all_that_a_turn_does_says_which_turn_it_is() -> None:
    """Tasks that it starts, threads that work for it, libraries; and no other turn's on the same loop."""
    configure_logging(Redactor({}), stream := io.StringIO())

    def in_a_thread() -> None:
        structlog.get_logger("ops").info("thread")

    async def task() -> None:
        logging.getLogger("remote.ssh").info("task")

    async def turn(turn_id: str) -> None:
        with turn_logging(turn_id):
            structlog.get_logger().info("claimed")
            await asyncio.sleep(0)
            attempt_logging(2, "build1", f"session of {turn_id}")
            await asyncio.gather(asyncio.to_thread(in_a_thread), asyncio.create_task(task()))
        structlog.get_logger().info("nobody's")

    async def two() -> None:
        await asyncio.gather(turn("t1"), turn("t2"))

    asyncio.run(two())
    lines = written(stream)
    for turn_id in ("t1", "t2"):
        ours = {line["event"]: line for line in lines if line.get("turn_id") == turn_id}
        assert ours.keys() == {"claimed", "thread", "task"}
        assert "attempt" not in ours["claimed"]
        for event in ("thread", "task"):
            attempt = [ours[event][name] for name in ("attempt", "host", "session_id")]
            assert attempt == [2, "build1", f"session of {turn_id}"]
    others = [line for line in lines if "turn_id" not in line]
    assert [line["event"] for line in others] == ["nobody's"] * 2
    assert not any("attempt" in line for line in others)


def test_a_turn_within_a_turn_leaves_the_first_one_as_it_was() -> None:
    configure_logging(Redactor({}), stream := io.StringIO())
    with turn_logging("t1"):
        attempt_logging(1, "build1", "s1")
        with turn_logging("t2"):
            structlog.get_logger().info("inner")
        structlog.get_logger().info("outer")
    inner, outer = written(stream)
    assert (inner["turn_id"], inner.get("attempt")) == ("t2", None)
    assert (outer["turn_id"], outer["attempt"], outer["host"]) == ("t1", 1, "build1")
