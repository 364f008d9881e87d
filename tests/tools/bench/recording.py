"""Long recordings for the benchmarks, derived from the recorded turns: the same bytes every time."""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from tests.support.places import RECORDINGS

_ID = re.compile(rb"\b(msg|toolu)_\w+")
_PROSE = Path(argparse.__file__).read_text()  # 100 KB of source code, what agents read and write most
_SEED = 20261121
_BODIES = 40  # recorded turns in one turn of a session

Lines = list[bytes]


def recorded(names: str = "*") -> list[Lines]:
    """Return the recorded turns that an agent printed, each as its lines; `names` is a glob."""
    files = sorted(RECORDINGS.glob(f"{names}.jsonl"))
    turns = [file.read_bytes().splitlines() for file in files if not file.stem.startswith(("sdk_wire", "live_d"))]
    return [turn for turn in turns if turn]


def as_recorded(size: int) -> Lines:
    """Return `size` bytes of all recorded turns, repeated.

    Their texts are scripted and short, and so are the turns: the worst case for a parser.
    """
    turns = [turn for turn in recorded() if max(map(len, turn)) < 100_000]
    return _fill(size, _cycle(turns))


def session(size: int, names: str = "*") -> Lines:
    """Return `size` bytes of one session of long turns, with texts and tool results as long as in daily work.

    A turn is an init line, the bodies of forty recorded turns in random order, and a result line.
    """
    return _fill(size, _session(recorded(names), random.Random(_SEED)))


def _fill(size: int, lines: Iterator[bytes]) -> Lines:
    taken: Lines = []
    while size > 0:
        taken.append(next(lines))
        size -= len(taken[-1]) + 1
    return taken


def _cycle(turns: list[Lines]) -> Iterator[bytes]:
    number = 0
    while True:
        for turn in turns:
            yield from _renamed(turn, number)
        number += 1


def _renamed(turn: Lines, number: int) -> Iterator[bytes]:
    """Yield the lines with unique message and tool ids, so that no message is taken for an earlier one."""
    for line in turn:
        yield _ID.sub(lambda found: b"%b_%d" % (found[0], number), line)


def _session(turns: list[Lines], chance: random.Random) -> Iterator[bytes]:
    first = next(turn for turn in turns if b'"init"' in turn[0])
    bodies = [
        [line for line in turn if b'"type":"result"' not in line and b'"init"' not in line] for turn in turns
    ]
    bodies = [body for body in bodies if body]
    number = 0
    while True:
        yield first[0]
        for body in chance.choices(bodies, k=_BODIES):
            number += 1
            for line in _renamed(body, number):
                yield from _life_sized(line, chance)
        yield first[-1]


def _life_sized(line: bytes, chance: random.Random) -> Iterator[bytes]:
    record = orjson.loads(line)
    content = record.get("message", {}).get("content")
    if b'"text_delta"' in line:
        for _ in range(_length(chance, median=8, most=100)):
            record["event"]["delta"]["text"] = _prose(chance, 20)
            yield orjson.dumps(record)
    elif record["type"] == "assistant" and content[0]["type"] == "text":
        content[0]["text"] = _prose(chance, _length(chance, median=300, most=4000))
        yield orjson.dumps(record)
    elif record["type"] == "user" and isinstance(content, list) and isinstance(content[0].get("content"), str):
        # Claude Code cuts a tool's output at 30,000 characters, and prints it twice.
        content[0]["content"] = text = _prose(chance, _length(chance, median=2000, most=30_000))
        copy = record.get("tool_use_result")
        if isinstance(copy, dict):
            copy.get("file", copy)["content" if "file" in copy else "stdout"] = text
        yield orjson.dumps(record)
    else:
        yield line


def _length(chance: random.Random, median: int, most: int) -> int:
    return min(most, round(chance.lognormvariate(0, 1) * median))


def _prose(chance: random.Random, length: int) -> str:
    start = chance.randrange(len(_PROSE) - length)
    return _PROSE[start : start + length]
