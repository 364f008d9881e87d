"""Tokens that agents send in place of an API key: signed, of one attempt, worthless anywhere else.

A token names its attempt and the account that pays; nobody without the signing key can make or change one. Whether
the attempt still runs is not in the token: the gateway asks the ledger.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

_PREFIX = "rt-"  # so that people, and scanners for secrets, recognize one
_KEY_BYTES = 32
_LONGEST = 1000  # characters
_SIGNED = b"runturn gateway token 1\n"


class InvalidToken(ValueError):
    """Not a token of this gateway, or an expired one."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who may make requests with a token, and who pays."""

    turn_id: str
    attempt: int
    account: str
    expires_at: int  # Unix time in seconds


class TokenSigner:
    """Signs and verifies tokens.

    To replace the key without refusing agents that run: put the new one first, and remove the old one once they
    have ended.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys`: the first one signs, all of them verify. Raises ValueError."""
        if not keys or any(len(key) < _KEY_BYTES for key in keys):
            raise ValueError(f"a signing key has at least {_KEY_BYTES} bytes")
        self._keys = tuple(keys)

    def sign(self, bearer: Bearer) -> str:
        """Return the token. Raises ValueError if the names in it are too long."""
        claims = [bearer.turn_id, bearer.attempt, bearer.account, bearer.expires_at]
        payload = _encode(orjson.dumps(claims))
        token = f"{_PREFIX}{payload}.{_encode(_signature(self._keys[0], payload))}"
        if len(token) > _LONGEST:
            raise ValueError(f"a token with these names is longer than {_LONGEST} characters")
        return token

    def verify(self, token: str, now: float) -> Bearer:
        """Return the token's bearer. Raises InvalidToken; the message contains nothing of the token."""
        payload, dot, signature = token.removeprefix(_PREFIX).partition(".")
        if not (token.startswith(_PREFIX) and dot and len(token) <= _LONGEST and token.isascii()):
            raise InvalidToken("not a token of this gateway")
        given = _decode(signature)
        if not any(hmac.compare_digest(given, _signature(key, payload)) for key in self._keys):
            raise InvalidToken("not a token of this gateway")
        turn_id, attempt, account, expires_at = orjson.loads(_decode(payload))
        if now >= expires_at:
            raise InvalidToken("the token has expired")
        return Bearer(turn_id, attempt, account, expires_at)


def _signature(key: bytes, payload: str) -> bytes:
    return hmac.digest(key, _SIGNED + payload.encode(), hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("not a token of this gateway") from None
    if _encode(decoded) != text:  # each token has one spelling
        raise InvalidToken("not a token of this gateway")
    return decoded
