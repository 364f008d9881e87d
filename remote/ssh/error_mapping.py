"""Mapping of connection errors from asyncssh and the system to ours. None of theirs get out."""

from __future__ import annotations

import os
import socket

import asyncssh
from asyncssh import constants

from remote.errors import HostAuthFailed, HostError, HostKeyChanged, HostUnreachable


class ConnectionDropped(HostUnreachable):
    """The host hung up during the handshake, as sshd does if too many come at once (MaxStartups)."""


_HUNG_UP = "{place} hung up during the handshake: {what}"

# The first match counts: earlier entries are special cases of later ones.
_FAULTS: tuple[tuple[type[Exception], type[HostError], str], ...] = (
    (
        asyncssh.PermissionDenied,
        HostAuthFailed,
        "{place} refuses the login: {what}. Check user and identity here (keys with a passphrase work only in an "
        "ssh-agent, passwords never), and authorized_keys on the host",
    ),
    (asyncssh.HostKeyNotVerifiable, HostKeyChanged, "the host key of {place} cannot be verified: {what}"),
    (asyncssh.KeyExchangeFailed, HostUnreachable, "{place} has no algorithms in common with us: {what}"),
    (asyncssh.ConnectionLost, ConnectionDropped, _HUNG_UP),
    (ConnectionResetError, ConnectionDropped, _HUNG_UP),
    (BrokenPipeError, ConnectionDropped, _HUNG_UP),
    (asyncssh.DisconnectError, HostUnreachable, "the handshake with {place} failed: {what}"),
    (asyncssh.ChannelOpenError, HostUnreachable, "the jump host cannot reach {place}: {what}"),
    (socket.gaierror, HostUnreachable, "no address found for {place}: {what}"),
    (
        TimeoutError,
        HostUnreachable,
        "{place} did not answer within the connect timeout. Check its address, and the network in between",
    ),
    (
        OSError,
        HostUnreachable,
        "{place} cannot be reached: {what}. Check its address and port, and whether sshd is running",
    ),
    (Exception, HostUnreachable, "the connection to {place} failed: {what}"),
)

_PREPARATION: tuple[tuple[type[Exception], str], ...] = (
    (asyncssh.ConfigParseError, "{config} cannot be used: {what}. Correct it, or set another ssh.config_file"),
    (UnicodeDecodeError, "{config} cannot be used: it is not UTF-8: {what}"),
    (RecursionError, "{config} cannot be used: its files include each other"),
    (
        asyncssh.KeyImportError,
        "the identity cannot be used: {what}. Set a private key without a passphrase, or keep the key in an "
        "ssh-agent and set none",
    ),
    (TimeoutError, "{config} could not be read within the connect timeout; does a `Match exec` in it hang?"),
    (OSError, "a file for the login cannot be read: {what}. Make it readable, or set another"),
    (Exception, "the login cannot be prepared: {what}. Check {config}, identity and jump hosts"),
)


def connect_error(host: str, place: str, error: Exception) -> HostError:
    """Return the error for a failed connection to `place`."""
    if _too_many_keys(error):
        return HostAuthFailed(host, f"{place} rejected the first keys offered; set the right one as identity")
    for foreign, ours, text in _FAULTS:
        if isinstance(error, foreign):
            return ours(host, text.format(place=place, what=_words(error)))
    raise AssertionError("every exception is an Exception")


def preparation_error(host: str, config: str, error: Exception) -> HostError:
    """Return the error for an ssh_config, an identity or a jump host that cannot be used."""
    for foreign, text in _PREPARATION:
        if isinstance(error, foreign):
            return HostAuthFailed(host, text.format(config=config, what=_words(error)))
    raise AssertionError("every exception is an Exception")


def _too_many_keys(error: Exception) -> bool:
    return isinstance(error, asyncssh.DisconnectError) and "authentication failures" in error.reason


def _words(error: Exception) -> str:
    match error:
        case asyncssh.ChannelOpenError(code=constants.OPEN_ADMINISTRATIVELY_PROHIBITED):
            return "it does not allow forwarding; see AllowTcpForwarding and PermitOpen in its sshd_config"
        case asyncssh.DisconnectError() | asyncssh.ChannelOpenError():
            return error.reason
        case socket.gaierror(strerror=str(text)):
            return text
        case OSError(errno=int(number), filename=filename):
            text = os.strerror(number)  # asyncio uses a different text
            return f"{text} ({filename})" if filename else text
        case asyncssh.Error() | ValueError() | OSError():
            return str(error)
    return f"{type(error).__name__}: {error}"
