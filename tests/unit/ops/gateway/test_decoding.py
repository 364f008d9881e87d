"""A meter sees an answer's content, whatever its coding and wherever it is cut; what it cannot see fails."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.gateway.decoding import Decoder

TEXT = b"".join(b'data: {"number": %d}\n\n' % number for number in range(300))


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


CODINGS = {"": TEXT, "identity": TEXT, " GZIP ": gzip.compress(TEXT), "deflate": zlib.compress(TEXT)}
BODIES = [*CODINGS.items(), ("deflate", raw_deflate(TEXT))]


@pytest.mark.parametrize(("coding", "body"), BODIES)
@given(size=st.integers(min_value=1, max_value=5000))
def test_content_is_decoded(coding: str, body: bytes, size: int) -> None:
    seen = bytearray()
    decoder = Decoder(coding, seen.extend)
    for begin in range(0, len(body), size):
        decoder.decode(body[begin : begin + size])
    assert seen == TEXT
    assert not decoder.failed


def test_all_members_of_a_gzip_are_decoded() -> None:
    seen = bytearray()
    decoder = Decoder("gzip", seen.extend)
    decoder.decode(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert (bytes(seen), decoder.failed) == (b"one two", False)


def test_nothing_is_held_back() -> None:
    data = bytes(2 * 2**20 + 7)
    seen = bytearray()
    Decoder("deflate", seen.extend).decode(raw_deflate(data))
    assert len(seen) == len(data)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "unheard-of"])
def test_other_codings_fail(coding: str) -> None:
    seen = bytearray()
    decoder = Decoder(coding, seen.extend)
    decoder.decode(TEXT)
    assert decoder.failed
    assert not seen


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_content_that_is_not_what_it_says_fails(coding: str) -> None:
    seen = bytearray()
    decoder = Decoder(coding, seen.extend)
    for _ in range(3):
        decoder.decode(b"\xff" * 100)
    assert decoder.failed
    assert not seen


def test_small_content_that_becomes_large_arrives_in_pieces() -> None:
    sizes = list[int]()
    decoder = Decoder("gzip", lambda data: sizes.append(len(data)))
    decoder.decode(gzip.compress(bytes(10 * 2**20)))
    assert sum(sizes) == 10 * 2**20
    assert max(sizes) <= 2**20
