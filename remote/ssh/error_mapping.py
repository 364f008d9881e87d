"""What asyncssh and the system say when a connection fails, as errors of ours. Nothing else of theirs gets out."""

from __future__ import annotations

import os
import socket

import asyncssh
from asyncssh import constants

from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable


class ConnectionDropped(HostUnreachable):
    """The host hung up in the middle of the handshake, as sshd does when too many come at once (MaxStartups)."""


_HUNG_UP = "{place} hung up during the handshake: {what}"

# The first that fits counts: what stands above is a special case of something below.
_FAULTS: tuple[tuple[type[Exception], type[HostError], str], ...] = (
    (
        asyncssh.PermissionDenied,
        HostAuthFailed,
        "{place} refuses the login: {what}. Check user and identity here (keys with a passphrase count only in an "
        "ssh-agent, and passwords never), and authorized_keys there",
    ),
    (asyncssh.HostKeyNotVerifiable, HostKeyChanged, "the host key of {place} cannot be verified: {what}"),
    (asyncssh.KeyExchangeFailed, HostUnreachable, "{place} has no algorithms in common with us: {what}"),
    (asyncssh.ConnectionLost, ConnectionDropped, _HUNG_UP),
    (ConnectionResetError, ConnectionDropped, _HUNG_UP),
    (BrokenPipeError, ConnectionDropped, _HUNG_UP),
    (asyncssh.DisconnectError, HostUnreachable, "the handshake with {place} failed: {what}"),
    (asyncssh.ChannelOpenError, HostUnreachable, "the jump host cannot reach {place}: {what}"),
    (socket.gaierror, HostUnreachable, "there is no address for {place}: {what}"),
    (
        TimeoutError,
        HostUnreachable,
        "{place} does not answer within the connect timeout. Check its address, and the network on the way there",
    ),
    (
        OSError,
        HostUnreachable,
        "{place} cannot be reached: {what}. Check its address and port, and whether sshd runs there",
    ),
    (Exception, HostUnreachable, "the connection to {place} failed: {what}"),
)

_PREPARATION: tuple[tuple[type[Exception], str], ...] = (
    (asyncssh.ConfigParseError, "{config} cannot be used: {what}. Correct it, or set another ssh.config_file"),
    (UnicodeDecodeError, "{config} cannot be used: it is not UTF-8: {what}"),
    (RecursionError, "{config} cannot be used: its files include each other"),
    (
        asyncssh.KeyImportError,
        "the identity cannot be used: {what}. Name a private key without a passphrase; or hold the key in an "
        "ssh-agent, and name none",
    ),
    (TimeoutError, "{config} is not read within the connect timeout; does one of its `Match exec` hang?"),
    (OSError, "a file for the login cannot be read: {what}. Make it readable, or name another"),
    (Exception, "the login cannot be prepared: {what}. Check {config}, identity and jump hosts"),
)


def connect_error(host: str, place: str, error: Exception) -> HostError:
    """The error for a connection to `place` that did not come about."""
    if _too_many_keys(error):
        return HostAuthFailed(host, f"{place} took none of the first keys offered; set the right one as identity")
    for foreign, ours, text in _FAULTS:
        if isinstance(error, foreign):
            return ours(host, text.format(place=place, what=_words(error)))
    raise AssertionError("every exception is an Exception")


def preparation_error(host: str, config: str, error: Exception) -> HostError:
    """The error for an ssh_config, an identity or a jump host that cannot be used."""
    for foreign, text in _PREPARATION:
        if isinstance(error, foreign):
            return HostAuthFailed(host, text.format(config=config, what=_words(error)))
    raise AssertionError("every exception is an Exception")


def _too_many_keys(error: Exception) -> bool:
    return isinstance(error, asyncssh.DisconnectError) and "authentication failures" in error.reason


def _words(error: Exception) -> str:
    match error:
        case asyncssh.ChannelOpenError(code=constants.OPEN_ADMINISTRATIVELY_PROHIBITED):
            return "it is not allowed there; see AllowTcpForwarding and PermitOpen of its sshd"
        case asyncssh.DisconnectError() | asyncssh.ChannelOpenError():
            return error.reason
        case socket.gaierror(strerror=str(text)):
            return text
        case OSError(errno=int(number), filename=filename):
            text = os.strerror(number)  # asyncio has words of its own there
            return f"{text} ({filename})" if filename else text
        case asyncssh.Error() | ValueError() | OSError():
            return str(error)
    return f"{type(error).__name__}: {error}"
