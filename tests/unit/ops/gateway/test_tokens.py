"""Tokens cannot be forged or changed, expire, and say nothing when they are refused."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.gateway.tokens import Bearer, InvalidToken, TokenSigner

KEY, OTHER = b"k" * 32, b"o" * 32
SIGNER = TokenSigner([KEY])
BEARER = Bearer("0b7d0a3e", 2, "main", 1000)
TOKEN = SIGNER.sign(BEARER)


def test_token_names_its_bearer_until_it_expires() -> None:
    assert TOKEN.startswith("rt-")
    assert SIGNER.verify(TOKEN, 999.9) == BEARER
    with pytest.raises(InvalidToken, match="expired"):
        SIGNER.verify(TOKEN, 1000)


@given(place=st.integers(min_value=0, max_value=len(TOKEN) - 1), letter=st.characters(codec="ascii"))
def test_token_with_another_letter_is_refused(place: int, letter: str) -> None:
    changed = TOKEN[:place] + letter + TOKEN[place + 1 :]
    if changed != TOKEN:
        with pytest.raises(InvalidToken):
            SIGNER.verify(changed, 0)


@given(st.text(max_size=80) | st.builds(lambda a, b: f"rt-{a}.{b}", st.text(max_size=40), st.text(max_size=40)))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        SIGNER.verify(text, 0)


def test_token_that_another_key_signed_is_refused_and_a_former_key_still_verifies() -> None:
    with pytest.raises(InvalidToken, match="not a token of this gateway"):
        TokenSigner([OTHER]).verify(TOKEN, 0)
    assert TokenSigner([OTHER, KEY]).verify(TOKEN, 0) == BEARER
    with pytest.raises(InvalidToken):
        SIGNER.verify(TokenSigner([OTHER, KEY]).sign(BEARER), 0)


def test_claims_without_their_signature_are_refused() -> None:
    claims = base64.urlsafe_b64encode(orjson.dumps(["0b7d0a3e", 2, "main", 2**40])).rstrip(b"=").decode()
    signature = TOKEN.partition(".")[2]
    for forged in (f"rt-{claims}.{signature}", f"rt-{claims}.", f"rt-{claims}", f"rt-.{signature}", TOKEN + "="):
        with pytest.raises(InvalidToken):
            SIGNER.verify(forged, 0)


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than 1000 characters"):
        SIGNER.sign(Bearer("t" * 800, 1, "main", 1000))


def test_refusal_shows_nothing_of_the_token() -> None:
    for text in (TOKEN[:-1], TOKEN + "x" * 2000, "sk-ant-secret"):
        with pytest.raises(InvalidToken) as refused:
            SIGNER.verify(text, 0)
        assert text[:12] not in str(refused.value)


@pytest.mark.parametrize("keys", [[], [b"short"], [KEY, b""]])
def test_keys_that_can_be_guessed_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        TokenSigner(keys)
