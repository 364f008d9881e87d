"""Speed of reading a stream (parse and fold), compared with a bare decoder and the agent SDK's own parser."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from claude_agent_sdk._internal.message_parser import parse_message

from adapters.claude_code.parser import ClaudeCodeParser
from adapters.turn_state import TurnState, fold
from tests.tools.bench.recording import Lines, as_recorded, session
from tests.tools.bench.rows import Rows, at_least, informs

_MB = 1_000_000
_BATCH = 200  # lines at a time, as a worker gets them
_ROUNDS = 5


def fold_rate() -> Rows:
    """Measure MB/s over 200 MB of a session with partial messages, as versions print it that do not join them.

    The same goals apply to a session without partial messages, most like those with joined ones: there, each line
    must be decoded, and even the bare decoder is barely four times as fast as the SDK. The recorded turns as they
    are, tiny, have no goal.
    """
    with tempfile.TemporaryDirectory() as directory:
        rates = _rates(_stored(session(200 * _MB, "m*_partial_*"), Path(directory)))
    rows: Rows = {
        "fold": informs(rates["fold"], "MB/s"),
        "fold_bare_orjson": informs(rates["orjson"], "MB/s"),
        "fold_agent_sdk": informs(rates["sdk"], "MB/s"),
        **_goals("fold", rates),
    }
    whole = _rates(session(50 * _MB, "[!mh]*"))
    rows |= {"fold_whole_messages": informs(whole["fold"], "MB/s"), **_goals("fold_whole_messages", whole)}
    tiny = _rates(as_recorded(20 * _MB))
    rows |= {
        "fold_tiny_turns_vs_orjson": informs(tiny["vs_orjson"], "x"),
        "fold_tiny_turns_vs_sdk": informs(tiny["vs_sdk"], "x"),
    }
    return rows


def _goals(name: str, rates: dict[str, float]) -> Rows:
    return {
        f"{name}_vs_orjson": at_least(rates["vs_orjson"], 0.5, "x"),
        f"{name}_vs_sdk": at_least(rates["vs_sdk"], 3, "x"),
    }


def _stored(lines: Lines, directory: Path) -> Lines:
    """Write a recording and read it back, as for any recording."""
    file = directory / "recording.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file.read_bytes().splitlines()


def _rates(lines: Lines) -> dict[str, float]:
    """Return medians in MB/s, and of the ratios within each round, where a noisy neighbor slows both."""
    megabytes = sum(len(line) + 1 for line in lines) / _MB
    rounds = [(_timed(_decode, lines), _timed(_fold, lines), _timed(_sdk, lines)) for _ in range(_ROUNDS)]
    return {
        "orjson": statistics.median(megabytes / bare for bare, _, _ in rounds),
        "fold": statistics.median(megabytes / ours for _, ours, _ in rounds),
        "sdk": statistics.median(megabytes / sdk for _, _, sdk in rounds),
        "vs_orjson": statistics.median(bare / ours for bare, ours, _ in rounds),
        "vs_sdk": statistics.median(sdk / ours for _, ours, sdk in rounds),
    }


def _timed(read: Callable[[Lines], None], lines: Lines) -> float:
    started = time.perf_counter()
    read(lines)
    return time.perf_counter() - started


def _decode(lines: Lines) -> None:
    for line in lines:
        orjson.loads(line)


def _fold(lines: Lines) -> None:
    parser, state = ClaudeCodeParser(), TurnState()
    for start in range(0, len(lines), _BATCH):
        fold(parser, state, lines[start : start + _BATCH])


def _sdk(lines: Lines) -> None:
    for line in lines:
        parse_message(json.loads(line))
