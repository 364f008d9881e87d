"""What the matrix calls right and wrong, and how it shows it."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from adapters.contract import AgentConfig
from adapters.protocol.result import ModelBill, Status, TurnResult, UsageTotals
from adapters.registry import BUILT_IN
from tests.fakes.model_api import Bill, BilledRequest, Usage
from tests.tools.agents.cells import Cell
from tests.tools.agents.played import Played, cell
from tests.tools.agents.results import load, order
from tests.tools.agents.scenes import Scene
from tests.tools.agents.table import line, tables
from tests.tools.agents.versions import VERSIONS, Version

PAID = Cell("codex", "1.0", Scene.SUCCESS, "completed", None, "", 1, 2, {"m": 50}, {"m": 50}, True, True)


def test_paid_success_that_is_booked_as_billed_holds() -> None:
    assert not PAID.faults
    assert not replace(PAID, booked={"m": 40}, complete=False).faults


def test_failed_or_repeated_success_does_not() -> None:
    assert replace(PAID, status="failed", kind="turn_failed").faults
    assert replace(PAID, attempts=2).faults
    assert not replace(PAID, scene=Scene.KILL_AGENT, attempts=2).faults


def test_books_that_are_wrong_do_not() -> None:
    assert replace(PAID, booked={"m": 40}).faults
    assert replace(PAID, booked={"m": 60}, complete=False).faults
    assert replace(PAID, booked={"other": 50}).faults
    assert not replace(PAID, booked={"unknown": 50}, complete=False).faults  # nobody has told it the model


def test_request_beside_the_conversation_is_missed() -> None:
    assert replace(PAID, billed={"m": 50, "small": 3}).faults


def test_books_of_one_turn_do_not_make_up_for_those_of_another() -> None:
    results = [_result(tokens, complete=whole) for tokens, whole in ((40, True), (50, False))]
    played = Played(results, {"first": _bill(50), "second": _bill(50)}, [])

    beside = cell(Version("codex", "1.0"), Scene.BESIDE, played)

    assert not beside.complete
    assert beside.faults == ("first: booked less than was billed, and called complete: {'m': 40} of {'m': 50}",)


def _result(tokens: int, *, complete: bool) -> TurnResult:
    usage = UsageTotals(by_model={"m": ModelBill(input_tokens=tokens)})
    return TurnResult(turn_id="t", status=Status.COMPLETED, usage=usage, usage_complete=complete, attempts=1)


def _bill(tokens: int) -> Bill:
    return Bill((BilledRequest("script", "main", 1, "m", "", "", usage=Usage(tokens)),))


def test_what_is_left_running_fails_the_cell() -> None:
    assert replace(PAID, left=("17 sleep 300",)).faults


def test_version_that_does_not_know_a_flag_is_no_fault_as_long_as_nothing_is_billed() -> None:
    lacks = replace(PAID, status="failed", billed={}, booked={}, message="error: unknown option '--json-schema'")
    assert lacks.unable
    assert not lacks.faults
    assert replace(lacks, billed={"m": 1}, complete=False).faults
    assert replace(lacks, message="it broke").faults


def test_table_shows_what_was_booked_of_what_was_billed() -> None:
    version = "agent_version_unsupported"
    refused = replace(PAID, scene=Scene.RESUME, status="failed", kind=version, attempts=0, billed={}, booked={})
    short = replace(PAID, scene=Scene.KILL_AGENT, attempts=2, booked={"m": 1}, complete=False)
    other = replace(PAID, scene=Scene.CUT, kinds_agree=False)
    row = tables([PAID, refused, short, other]).splitlines()[2]
    assert row == "| 1.0 | 50 | refused |  |  |  |  | 50\\* |  | 1 of 50, ×2 |  |  |  |"
    assert line(short).startswith("ok   codex 1.0 kill-agent: completed ×2, billed 50")


def test_document_has_every_version_in_every_scene() -> None:
    places = {(cell.agent, cell.version, cell.scene) for cell in load()}
    wanted = {(agent, number, scene) for agent in VERSIONS for number in VERSIONS[agent] for scene in Scene}
    assert wanted <= places
    assert load() == sorted(load(), key=order)


def test_every_cell_of_the_document_holds() -> None:
    assert not [line(cell) for cell in load() if cell.faults]


@pytest.mark.parametrize("entry", BUILT_IN, ids=lambda entry: entry.name)
def test_adapter_calls_no_version_proved_that_lacks_anything_in_the_document(entry: EntryPoint) -> None:
    """A scene that no version of the agent can play is none of what was proved."""
    cells = [cell for cell in load() if cell.agent == entry.name]
    possible = {cell.scene for cell in cells if not cell.unable}
    short = {cell.version for cell in cells if cell.unable and cell.scene in possible}

    versions = entry.load()(AgentConfig()).capabilities.versions

    proved = set(versions.proved) if versions and cells else set()
    assert proved <= {cell.version for cell in cells} - short


def test_version_that_is_known_not_to_work_was_refused_before_anything_was_billed() -> None:
    cells = [cell for cell in load() if cell.kind == "agent_version_unsupported"]

    assert {(cell.agent, cell.version) for cell in cells} == {("gemini", "0.39.0")}
    assert all(cell.refused for cell in cells)
    assert len(cells) == len(Scene) - 1  # structured output no Gemini has
