"""Prompts reach the real Claude Code as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.protocol.result import Status
from tests.fakes.model_api import ModelApi, Reply, Script, Text, Usage
from tests.integration.conftest import claude_fleet
from tests.support.fleets.fleet import Fleet

OPTIONS = {"model": "claude-sonnet-4-5"}
SCRIPTS = (
    Script("large", (Reply((Text("read it all"),), Usage(2_000_000, 5)),)),
    Script("slash", (Reply((Text("as text"),), Usage(10, 5)),)),
    Script("command", (Reply((Text("unexpected"),), Usage(10, 5)),)),
    Script("dash", (Reply((Text("no flag"),), Usage(10, 5)),)),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ModelApi]]:
    with claude_fleet(tmp_path_factory.mktemp("prompts"), *SCRIPTS) as place:
        yield place


def test_prompt_of_nearly_ten_megabytes(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    prompt = "[script:large] " + "süß 😀 und lang\n" * 500_000
    assert 9_000_000 < len(prompt.encode()) < 10 * 1024 * 1024
    result = fleet.run(fleet.request(prompt, options=OPTIONS))
    assert (result.status, result.text) == (Status.COMPLETED, "read it all")
    (asked,) = api.bill("large").requests
    assert len(asked.prompt) == len(prompt)
    assert asked.prompt == prompt
    fleet.assert_nothing_left()


def test_leading_slash_is_text(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(fleet.request("/compact [script:slash]", options=OPTIONS))
    (asked,) = api.bill("slash").requests
    # Claude Code looks at the first character only; a newline before it is nothing to the model.
    assert (result.text, asked.prompt) == ("as text", "\n/compact [script:slash]")


def test_leading_slash_is_a_command_on_request(place: tuple[Fleet, ModelApi]) -> None:
    fleet, api = place
    result = fleet.run(fleet.request("/compact [script:command]", options={**OPTIONS, "slash_command": True}))
    assert (result.status, result.num_turns, api.bill("command").requests) == (Status.COMPLETED, 0, ())


def test_leading_dash_is_no_flag(place: tuple[Fleet, ModelApi]) -> None:
    fleet, _ = place
    assert fleet.run(fleet.request("--help [script:dash]", options=OPTIONS)).text == "no flag"
