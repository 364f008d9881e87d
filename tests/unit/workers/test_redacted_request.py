"""What monitors see of a request: enough to know it by, and no secret."""

from __future__ import annotations

import pytest

from adapters.protocol.request import TurnRequest
from ops.redaction import Redactor
from workers.redacted_request import described

KNOWN = Redactor({"DATABASE_PASSWORD": "hunter22 and more"})
KEY = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def of(prompt: str, **fields: object) -> str:
    request = TurnRequest.parse({"prompt": prompt, "workspace": "/srv", **fields})
    line = described(request, KNOWN)
    assert line == described({"prompt": prompt, "workspace": "/srv", "agent": "claude-code", **fields}, KNOWN)
    return line


def test_agent_place_and_first_words() -> None:
    assert of("fix\n\tthe build") == "(claude-code on any host: fix the build)"
    assert of("x", host="build1", agent="scripted") == "(scripted on build1: x)"
    assert (
        of("x", host_labels={"gpu": "yes", "os": "linux"}) == "(claude-code on a host with gpu=yes, os=linux: x)"
    )


def test_it_is_one_short_line() -> None:
    assert of("word " * 100_000).endswith("word word…)")
    assert len(of("word " * 100_000)) < 120
    assert len(of("long" * 1_000_000, host="h" * 128)) < 250
    labels = {f"label{n}": "v" * 128 for n in range(50)}
    assert len(of("x", host_labels=labels)) < 250
    assert of("a\x1b[31mb\u202ec") == "(claude-code on any host: a [31mb c)"


def test_secrets_are_redacted_known_ones_and_those_that_look_like_one() -> None:
    assert of(f"use {KEY} to push") == "(claude-code on any host: use [redacted:key] to push)"
    assert (
        of("log in with hunter22 and more")
        == "(claude-code on any host: log in with [redacted:DATABASE_PASSWORD])"
    )
    assert KEY[4:9] not in of("x", host_labels={"token": KEY})


@pytest.mark.parametrize("shift", range(0, 45, 4))
def test_key_is_not_shown_where_the_text_is_cut(shift: int) -> None:
    """Neither where it is shown no further, nor where it is looked at no further and comes to the front."""
    for prompt in (
        f"{'x' * (45 + shift)} {KEY}",
        "-----BEGIN PRIVATE " + f"KEY-----{'A' * (1_920 + shift)}-----END PRIVATE KEY----- {KEY}" + " y" * 100,
    ):
        assert KEY[:6] not in of(prompt)


def test_producers_show_nothing_of_the_prompt() -> None:
    """They may not know what is secret."""
    request = TurnRequest.parse({"prompt": "hunter22", "workspace": "/srv"})
    assert described(request) == "(claude-code on any host)"


@pytest.mark.parametrize("sent", [None, 7, [], "text", ["x"]])
def test_whatever_was_sent_has_a_line(sent: object) -> None:
    assert described(sent, KNOWN) == "(not a request)"
    document = {"prompt": sent, "agent": sent, "host": sent, "host_labels": sent}
    assert described(document, KNOWN).startswith("(")
