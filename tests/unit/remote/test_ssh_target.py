"""How jump hosts are written down."""

from __future__ import annotations

import pytest

from remote.ssh.target import hops


@pytest.mark.parametrize(
    ("text", "user", "address", "port"),
    [
        ("box", None, "box", None),
        ("box:2222", None, "box", 2222),
        ("me@box", "me", "box", None),
        ("me@box.example:22", "me", "box.example", 22),
        ("me@realm@box", "me@realm", "box", None),
        ("ssh://me@box:22", "me", "box", 22),
        ("192.0.2.7", None, "192.0.2.7", None),
        ("2001:db8::7", None, "2001:db8::7", None),
        ("[2001:db8::7]", None, "2001:db8::7", None),
        ("me@[fe80::7%eth0]:2222", "me", "fe80::7%eth0", 2222),
    ],
)
def test_a_hop_is_an_address_and_perhaps_a_user_and_a_port(
    text: str, user: str | None, address: str, port: int | None
) -> None:
    (hop,) = hops(text)
    assert (hop.name, hop.user, hop.address, hop.port) == (text, user, address, port)
    assert hop.identity is hop.jump is None


def test_hops_come_in_their_order() -> None:
    assert [hop.name for hop in hops("one, me@two:22,three")] == ["one", "me@two:22", "three"]


@pytest.mark.parametrize(
    "text",
    ["", ",", "one,", "@box", "me@", "a b", ":22", "box:", "-oX", "me@-x", "[::1]22", "me:pw@box"],
)
def test_what_is_no_hop_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a host to connect to is \[user@\]address\[:port\], not "):
        hops(text)


@pytest.mark.parametrize("port", ["0", "65536", "ssh", "22x"])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(ValueError, match=f"a port is a number from 1 to 65535, not '{port}'"):
        hops(f"box:{port}")
