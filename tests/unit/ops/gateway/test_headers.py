"""Headers pass as they are, except those of one connection and the credential."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from ops.gateway.decoding import accepted
from ops.gateway.headers import passed_on


def test_headers_pass_in_their_order_and_repeated() -> None:
    headers = CIMultiDict([("Anthropic-Beta", "a"), ("X-B", "1"), ("anthropic-beta", "b"), ("x-b", "2")])
    assert list(passed_on(headers).items()) == list(headers.items())


def test_headers_of_one_connection_and_those_that_it_names_stay() -> None:
    headers = CIMultiDict(
        [
            ("Connection", "keep-alive, X-Hop"),
            ("connection", "close ,x-other"),
            ("Keep-Alive", "1"),
            ("Transfer-Encoding", "chunked"),
            ("TE", "trailers"),
            ("Upgrade", "h2c"),
            ("Proxy-Authorization", "secret"),
            ("Host", "gateway"),
            ("Expect", "100-continue"),
            ("X-Hop", "1"),
            ("X-Other", "1"),
            ("X-Api-Key", "token"),
            ("Content-Type", "application/json"),
        ]
    )
    assert dict(passed_on(headers, but=("x-api-key",))) == {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip, deflate, br, zstd", "gzip, deflate"),
        ("br;q=1.0, GZIP;q=0.5, *;q=0", "GZIP;q=0.5"),
        ("br", "identity"),
        ("identity", "identity"),
    ],
)
def test_only_codings_that_a_meter_can_read_are_asked_for(wanted: str | None, sent: str) -> None:
    assert accepted(wanted) == sent
