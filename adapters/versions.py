"""Versions of an agent: tested with its adapter (`proved`), known not to work, and all others.

Text that is no recognized version is never refused, only unproved.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

_NUMBERS = r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,3}"
_WORDS = r"[0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*"  # of a prerelease or a build
_VERSION = re.compile(rf"({_NUMBERS})(?:-({_WORDS}))?(?:\+{_WORDS})?")
_LONGEST = 64  # characters
_LONGEST_NUMBER = 18  # digits; longer ones are compared as text

# Sort key: the numbers, whether it is a release, and the words of the prerelease, numbers before texts.
_Order = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


# What `make test-agents` tests with each version.
MATRIX = (
    "success with tools",
    "resume",
    "structured output",
    "API refusal",
    "rate limit",
    "cut stream",
    "cancel",
    "kill of agent and worker",
    "requests outside the conversation",
)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Version range that is known not to work with an adapter."""

    reason: str  # what goes wrong, for the operator
    first: str | None = None  # the oldest affected version; None: all older ones are affected
    mended: str | None = None  # the first version that works again; None: all newer ones are affected


@dataclass(frozen=True, slots=True)
class Versions:
    """Tested and unsupported versions of an agent."""

    proved: tuple[str, ...] = ()  # tested versions, oldest first; never unsupported
    covers: tuple[str, ...] = ()  # what was tested with each of them
    unsupported: tuple[Unsupported, ...] = ()


class Standing(StrEnum):
    """Standing of one version."""

    PROVED = "proved"
    UNPROVED = "unproved"
    UNSUPPORTED = "unsupported"
    ALLOWED = "allowed"  # unsupported, but allowed by the operator
    UNKNOWN = "unknown"  # the version is not known


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one version."""

    standing: Standing
    words: str | None = None  # explanation, if any

    @property
    def refused(self) -> bool:
        """Return True if no turn may run with this version."""
        return self.standing is Standing.UNSUPPORTED


NO_VERDICT = Verdict(Standing.UNKNOWN)


def verdict_on(version: str | None, known: Versions, allowed: Collection[str] = ()) -> Verdict:
    """Return the verdict on a version; `allowed` are versions that the operator allows even if unsupported."""
    if version is None:
        return NO_VERDICT
    if any(_same(version, proved) for proved in known.proved):
        return Verdict(Standing.PROVED)
    fault = next((fault for fault in known.unsupported if _within(version, fault)), None)
    if fault is None:
        return Verdict(Standing.UNPROVED, _unproved(version, known))
    if any(_same(version, wanted) for wanted in allowed):
        words = f"{version} is allowed by allow_versions, though it is known not to work: {fault.reason}"
        return Verdict(Standing.ALLOWED, words)
    return Verdict(Standing.UNSUPPORTED, f"{version} is known not to work: {fault.reason}")


def reaches(version: str | None, first: str) -> bool:
    """Return True if a version is known to be `first` or newer."""
    return version is not None and _within(version, Unsupported("", first=first))


def find_version(text: str) -> str | None:
    """Return the first version in a program's version text, such as `codex-cli 0.169.0`."""
    found = _VERSION.search(text)
    return found[0] if found is not None and len(found[0]) <= _LONGEST else None


def is_version(text: str) -> bool:
    """Return True if the whole text is a version."""
    return _order(text) is not None


def listed(words: Collection[str]) -> str:
    """Return the words joined as in a sentence."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def _unproved(version: str, known: Versions) -> str | None:
    if not known.proved:
        return None  # its adapter names no versions
    if not known.covers:
        return f"not tested with {version}, only with {listed(known.proved)}"
    were = "was" if len(known.covers) == 1 else "were"
    return f"not tested with {version}: {listed(known.covers)} {were} tested with {listed(known.proved)}"


def _same(one: str, other: str) -> bool:
    order = _order(one)
    return one == other if order is None else order == _order(other)


def _within(version: str, fault: Unsupported) -> bool:
    order = _order(version)
    if order is None:
        return False
    first = _order(fault.first) if fault.first is not None else None
    mended = _order(fault.mended) if fault.mended is not None else None
    return (first is None or first <= order) and (mended is None or order < mended)


def _order(version: str) -> _Order | None:
    """Return the sort key of a version; None if its form is unknown."""
    found = _VERSION.fullmatch(version) if len(version) <= _LONGEST else None
    if found is None:
        return None
    numbers = [int(number) for number in found[1].split(".")]
    while numbers and numbers[-1] == 0:  # 2.1 is 2.1.0
        numbers.pop()
    words = () if found[2] is None else tuple(_word(word) for word in found[2].split("."))
    return tuple(numbers), found[2] is None, words


def _word(word: str) -> tuple[bool, int, str]:
    """Return the sort key of a prerelease word, as in semantic versioning: numbers by value, before all texts."""
    is_number = word.isdecimal() and len(word) <= _LONGEST_NUMBER
    return not is_number, int(word) if is_number else 0, "" if is_number else word
