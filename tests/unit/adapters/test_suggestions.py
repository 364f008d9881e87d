"""A name that is not known, and the one that was meant: next to it in the document, wherever that is."""

from __future__ import annotations

import pytest

from adapters.claude_sdk.options import ClaudeSdkOptions
from adapters.errors import InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.suggestions import meant


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"lables": {}}, "lables: is not a known field; did you mean labels?"),
        ({"colour": {}}, "colour: is not a known field"),
        ({"collect": {"pach": True}}, "collect.pach: is not a known field; did you mean patch?"),
        ({"mounts": [{"hostpath": "/x"}]}, "mounts.0.hostpath: is not a known field; did you mean host_path?"),
        ({"x" * 1000: 1}, "is not a known field"),
    ],
)
def test_field_of_a_request(document: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        TurnRequest.parse({"prompt": "x", "workspace": "/x", **document})
    assert message in str(caught.value)
    assert ("did you mean" in str(caught.value)) == ("did you mean" in message)


@pytest.mark.parametrize(
    ("options", "name", "near"),
    [
        ({"modell": "x"}, "options.modell", "model"),
        ({"permissions": {"alow": []}}, "options.permissions.alow", "allow"),
        ({"mcp_servers": {"x": {"comand": "y"}}}, "options.mcp_servers.x.stdio.comand", "command"),
        ({"agents": {"x": {"promt": "y"}}}, "options.agents.x.promt", "prompt"),
    ],
)
def test_option_of_an_agent(options: dict[str, object], name: str, near: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ClaudeSdkOptions.parse(options)  # type: ignore[arg-type]  # JSON
    assert f"{name}: is not a known field; did you mean {near}?" in str(caught.value)


def test_only_the_first_of_many_unknown_fields_are_guessed_at() -> None:
    with pytest.raises(InvalidRequest) as caught:
        TurnRequest.parse({"prompt": "x", "workspace": "/x", **{f"label{n}": 1 for n in range(50)}})
    assert str(caught.value).count("is not a known field") == 50
    assert str(caught.value).count("did you mean") == 5


def test_variables_are_shown_as_they_stand_in_the_environment() -> None:
    assert meant("broker_ulr", ["broker_url", "host_name"], "RUNTURN_") == "; did you mean RUNTURN_BROKER_URL?"
    assert meant("colour", ["broker_url", "host_name"], "RUNTURN_") == ""
