"""From the results of a scene's turns and the API's bills to a cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

from adapters.protocol.result import TurnResult
from tests.fakes.model_api import Bill
from tests.tools.agents.cells import Cell, wrong_books
from tests.tools.agents.scenes import Scene
from tests.tools.agents.versions import Version

Counts = tuple[int, int, int, int]  # input, output, read from the cache, written to it


@dataclass(frozen=True, slots=True)
class Played:
    """What there is of a scene that has been played; the last turn is the one that matters."""

    results: list[TurnResult]
    bills: dict[str, Bill]  # by the script of each turn
    left: list[str]


def cell(version: Version, scene: Scene, played: Played) -> Cell:
    """Compare the books with the bill."""
    # A turn that only prepares the scene has to be right, too.
    telling = next((result for result in played.results if result.error is not None), played.results[-1])
    booked = _sum([counts for result in played.results for counts in _booked(result)])
    billed = _sum([counts for bill in played.bills.values() for counts in _billed(bill)])
    return Cell(
        agent=version.agent,
        version=version.number,
        scene=scene,
        status=telling.status,
        kind=telling.error and telling.error.kind,
        message=telling.error.message if telling.error else "",
        attempts=max(result.attempts for result in played.results),
        requests=sum(len(bill.requests) for bill in played.bills.values()),
        billed=_tokens(billed),
        booked=_tokens(booked),
        complete=all(result.usage_complete for result in played.results),
        kinds_agree=_by_kind(booked) == _by_kind(billed),
        left=tuple(played.left),
        turns_wrong=tuple(_wrong(played)) if len(played.results) > 1 else (),
    )


def _wrong(played: Played) -> Iterator[str]:
    """What is wrong with the books of single turns, which others may make up for."""
    for result, (script, bill) in zip(played.results, played.bills.items(), strict=False):
        booked, billed = _tokens(_sum(_booked(result))), _tokens(_sum(_billed(bill)))
        for wrong in wrong_books(booked, billed, complete=result.usage_complete):
            yield f"{script}: {wrong}: {booked} of {billed}"


def _tokens(sums: dict[str, Counts]) -> dict[str, int]:
    return {model: sum(counts) for model, counts in sums.items()}


def _by_kind(sums: dict[str, Counts]) -> list[int]:
    return [sum(counts[kind] for counts in sums.values()) for kind in range(4)]


def _booked(result: TurnResult) -> list[tuple[str, Counts]]:
    return [
        (
            model,
            (
                used.input_tokens,
                used.output_tokens,
                used.cache_read_input_tokens,
                used.cache_creation_input_tokens,
            ),
        )
        for model, used in result.usage.by_model.items()
    ]


def _billed(bill: Bill) -> list[tuple[str, Counts]]:
    return [(model, astuple(used)[:4]) for model, used in bill.by_model.items()]


def _sum(parts: list[tuple[str, Counts]]) -> dict[str, Counts]:
    sums: dict[str, Counts] = {}
    for model, counts in parts:
        before = sums.get(model, (0, 0, 0, 0))
        sums[model] = (
            before[0] + counts[0],
            before[1] + counts[1],
            before[2] + counts[2],
            before[3] + counts[3],
        )
    return {model: counts for model, counts in sums.items() if any(counts)}
