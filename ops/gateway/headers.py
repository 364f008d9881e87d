"""Headers that pass the gateway: all but those that concern one connection. See RFC 9110, section 7.6.1."""

from __future__ import annotations

from collections.abc import Iterable

from multidict import CIMultiDict, CIMultiDictProxy

Headers = CIMultiDictProxy[str] | CIMultiDict[str]

_OF_ONE_CONNECTION = frozenset(
    {
        "connection",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def passed_on(headers: Headers, *, but: Iterable[str] = ()) -> CIMultiDict[str]:
    """Return the headers to pass on, in their order, repeated ones too.

    `but`: others to leave out, in lower case.
    """
    named = ",".join(headers.getall("connection", ())).lower().split(",")
    dropped = _OF_ONE_CONNECTION.union(but, (name.strip() for name in named))
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
