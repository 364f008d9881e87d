"""Which error of ours stands for what asyncssh and the system say."""

from __future__ import annotations

import errno
import socket

import asyncssh
import pytest
from asyncssh import constants

from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable
from remote.ssh.error_mapping import ConnectionDropped, connect_error, preparation_error

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('192.0.2.7', 22)")
PROHIBITED = asyncssh.ChannelOpenError(constants.OPEN_ADMINISTRATIVELY_PROHIBITED, "open failed")
TOO_MANY = asyncssh.DisconnectError(constants.DISC_PROTOCOL_ERROR, "Too many authentication failures")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (asyncssh.PermissionDenied("no"), HostAuthFailed, "box:22 refuses the login: no. Check user and identity"),
        (TOO_MANY, HostAuthFailed, "box:22 rejected the first keys offered; set the right one as identity"),
        (asyncssh.HostKeyNotVerifiable("no"), HostKeyChanged, "the host key of box:22 cannot be verified: no"),
        (asyncssh.KeyExchangeFailed("no"), HostUnreachable, "box:22 has no algorithms in common with us: no"),
        (asyncssh.ConnectionLost("gone"), ConnectionDropped, "box:22 hung up during the handshake: gone"),
        (ConnectionResetError(errno.ECONNRESET, "x"), ConnectionDropped, "handshake: Connection reset by peer"),
        (BrokenPipeError(errno.EPIPE, "x"), ConnectionDropped, "box:22 hung up during the handshake: Broken pipe"),
        (asyncssh.ProtocolError("strange"), HostUnreachable, "the handshake with box:22 failed: strange"),
        (asyncssh.ChannelOpenError(2, "refused"), HostUnreachable, "the jump host cannot reach box:22: refused"),
        (PROHIBITED, HostUnreachable, "the jump host cannot reach box:22: it does not allow forwarding"),
        (socket.gaierror(-2, "not known"), HostUnreachable, "no address found for box:22: not known"),
        (TimeoutError(), HostUnreachable, "box:22 did not answer within the connect timeout"),
        (REFUSED, HostUnreachable, "box:22 cannot be reached: Connection refused"),
        (OSError(errno.EHOSTUNREACH, "x"), HostUnreachable, "box:22 cannot be reached: No route to host"),
        (OSError("several"), HostUnreachable, "box:22 cannot be reached: several"),
        (ValueError("odd"), HostUnreachable, "the connection to box:22 failed: odd"),
        (OverflowError("odd"), HostUnreachable, "the connection to box:22 failed: OverflowError: odd"),
    ],
)
def test_a_failed_connection_is_an_error_of_ours(error: Exception, kind: type[HostError], text: str) -> None:
    ours = connect_error("worker", "box:22", error)
    assert type(ours) is kind
    assert ours.host == "worker"
    assert text in ours.message


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            asyncssh.ConfigParseError("config line 1: odd"),
            "~/config cannot be used: config line 1: odd. ",
        ),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), "~/config cannot be used: it is not UTF-8"),
        (RecursionError(), "~/config cannot be used: its files include each other"),
        (asyncssh.KeyImportError("key: odd"), "the identity cannot be used: key: odd. Set a private key without"),
        (TimeoutError(), "~/config could not be read within the connect timeout; does a `Match exec` in it hang?"),
        (FileNotFoundError(errno.ENOENT, "x", "key"), "cannot be read: No such file or directory (key). Make it"),
        (ValueError("odd"), "the login cannot be prepared: odd. Check ~/config, identity and jump hosts"),
        (KeyError("odd"), "the login cannot be prepared: KeyError: 'odd'. Check"),
    ],
)
def test_a_login_that_cannot_be_prepared_is_refused(error: Exception, text: str) -> None:
    ours = preparation_error("worker", "~/config", error)
    assert type(ours) is HostAuthFailed
    assert ours.host == "worker"
    assert text in ours.message
