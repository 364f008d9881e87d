"""Structured outputs are held against any schema, and none holds up the worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.protocol.output_schema import MOST_LEVELS
from adapters.protocol.result import TurnResult
from tests.support.fleets.site import Site
from tests.support.places import RECORDINGS
from workers.agents.output_validation import OutputValidator
from workers.turn.run import RunTurn

PATTERN = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^[a-z]+$"}}}
_LEVEL = {"n": {"$ref": "#/$defs/level"}}
ANY_HERE: dict[str, Any] = {"type": "object"}
ANY_ELSEWHERE: dict[str, Any] = {"$ref": "#/$defs/level", "$defs": {"level": {"patternProperties": _LEVEL}}}
ENDLESS = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}}
_TWICE = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(40)}
DOUBLING: dict[str, Any] = {"$defs": {**_TWICE, "n40": {"type": "object"}}, "$ref": "#/$defs/n0"}


@pytest.mark.parametrize(
    ("schema", "output", "fault"),
    [
        ({"properties": {"n": {"type": "integer"}}}, {"n": "x"}, "n: 'x' is not of type 'integer'"),
        (PATTERN, {"n": "abc"}, None),
        (PATTERN, {"n": "A\u00e9"}, "n: 'A\u00e9' does not match '^[a-z]+$'"),
    ],
)
def test_an_output_is_held_against_its_schema(schema: dict[str, Any], output: object, fault: str | None) -> None:
    assert asyncio.run(_fault(schema, output)) == fault


def test_schemas_without_an_end_are_a_fault_while_all_else_goes_on() -> None:
    faults, rounds = asyncio.run(_meanwhile((ENDLESS, {"n": "a" * 64 + "!"}), (DOUBLING, {})))
    assert all("takes more than 1 s" in (fault or "") for fault in faults), faults
    assert rounds > 5


@pytest.mark.parametrize("schema", [ANY_HERE, ANY_ELSEWHERE], ids=["here", "elsewhere"])
@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 1200, 2000, 5000])  # each Python has another limit of its own
def test_an_output_that_is_nested_too_deeply_is_a_fault(schema: dict[str, Any], levels: int) -> None:
    assert asyncio.run(_fault(schema, _nested(levels))) == "it is nested too deeply"


@pytest.mark.parametrize("schema", [ANY_HERE, ANY_ELSEWHERE], ids=["here", "elsewhere"])
def test_an_output_that_is_nested_as_deeply_as_may_be_is_checked(schema: dict[str, Any]) -> None:
    assert asyncio.run(_fault(schema, _nested(MOST_LEVELS))) is None


def test_a_turn_whose_schema_has_no_end_fails_and_does_not_come_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    recording = {"recording": str(RECORDINGS / "l_json_schema.jsonl")}
    turn_id = site.queue(options=recording, output_schema={"type": "object", **DOUBLING})
    worker = replace(site.worker(), outputs=OutputValidator(most_s=1))
    result = asyncio.run(RunTurn(worker, site.claim(turn_id)).drive())
    site.close()
    assert isinstance(result, TurnResult)
    assert result.error is not None
    assert (result.error.kind, result.attempts) == ("structured_output_missing", 1)
    assert "takes more than 1 s" in result.error.message
    assert result.cost_usd, "it was billed all the same"


def _nested(levels: int) -> dict[str, Any]:
    output: dict[str, Any] = {}
    for _ in range(levels - 1):
        output = {"n": output}
    return output


async def _fault(schema: dict[str, Any], output: object) -> str | None:
    return await OutputValidator().fault(schema, output)


async def _meanwhile(*asked: tuple[dict[str, Any], object]) -> tuple[list[str | None], int]:
    """The faults, and how often something else on the loop had its turn."""
    outputs, rounds = OutputValidator(most_s=1), 0
    checking = asyncio.gather(*(outputs.fault(schema, output) for schema, output in asked))
    while not checking.done():
        await asyncio.sleep(0.05)
        rounds += 1
    return await checking, rounds
