"""Answers of models' APIs as bytes, and what meters read of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise

from adapters.toolkit.metering import Meter, Metered
from adapters.toolkit.wire import Wire

Event = dict[str, object]


def stream(events: Iterable[Event], *, named: bool = True, line_end: str = "\n") -> bytes:
    """A stream of server-sent events; `named`: each with its type in a line of its own."""
    lines: list[str] = []
    for event in events:
        if named:
            lines.append(f"event: {event['type']}")
        lines += [f"data: {json.dumps(event, ensure_ascii=False)}", ""]
    return "".join(line + line_end for line in lines).encode()


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The bytes, cut at these places."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in pairwise(places)]


def metered(wire: Wire, chunks: Iterable[bytes], model: str = "asked", *, streamed: bool = True) -> Metered:
    """What the wire's meter reads."""
    meter: Meter = wire.meter(model, streamed=streamed)
    for chunk in chunks:
        meter.feed(chunk)
    return meter.end()


def whole(wire: Wire, body: object, model: str = "asked") -> Metered:
    """What the wire's meter reads of an answer in one piece."""
    return metered(wire, [json.dumps(body).encode()], model, streamed=False)
