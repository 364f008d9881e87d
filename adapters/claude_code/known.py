"""What each version of Claude Code is known to tell. What a version never tells is missing for no reason.

Measured with 1.0.128, 2.0.0, 2.0.76, 2.1.0, 2.1.32, 2.1.50, 2.1.69, 2.1.105, 2.1.142, 2.1.176, 2.1.197 and 2.1.330
against an API that kept the bill. Of a version in between, only what is true of both its neighbours is believed.
"""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_NUMBERS = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# Result lines of 2.1.0 and older have no `stop_reason`; those of 2.1.32 and 2.1.50 have one that is always null.
_TELLS_STOP_REASON: Version = (2, 1, 69)
# 2.1.0 and older print the stop reason with the last block of any message, 2.1.32 only where it was not streamed.
_TELLS_LOST_ANSWERS: Version = (2, 1, 32)
# Beside the conversation, and without waiting for the answers, versions up to 2.1.50 ask haiku about every
# command, 2.0.76 and 2.1.0 warm up subagents on several models, and 2.1.105 asks haiku for a title; what of that
# is under way when the turn ends stands in no account, and none of it in the session files. 2.1.69 asks for none.
# 2.1.142 and newer ask for a title unless CLAUDE_CODE_DISABLE_TERMINAL_TITLE is set, as it is.
_KEEPS_WHOLE_BOOKS: tuple[tuple[Version, Version | None], ...] = (((2, 1, 69), (2, 1, 70)), ((2, 1, 142), None))
# 2.1.330 counts over the session in `modelUsage`, and tells what is new beside it.
_COUNTS_BY_PROCESS: Version = (2, 1, 197)


def read_version(text: object) -> Version | None:
    """Read a version such as 2.1.330; None for what is none, as for versions that do not tell theirs."""
    found = _NUMBERS.match(text) if isinstance(text, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def tells_stop_reason(version: Version | None) -> bool:
    """Whether a result line always has the stop reason of the last answer, so that null means it broke off."""
    return version is not None and version >= _TELLS_STOP_REASON


def tells_lost_answers(version: Version | None) -> bool:
    """Whether a message that has its stop reason at once was asked for again, because its stream broke off."""
    return version is not None and version >= _TELLS_LOST_ANSWERS


def counts_by_process(version: Version | None) -> bool:
    """Whether `modelUsage` counts from the start of the process, where no news since the last result are told."""
    return version is not None and version <= _COUNTS_BY_PROCESS


def asks_aside(version: Version | None) -> bool:
    """Whether this version may have asked the model for more than it has in any account."""
    if version is None:
        return True
    return not any(first <= version and (end is None or version < end) for first, end in _KEEPS_WHOLE_BOOKS)
