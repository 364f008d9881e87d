"""What each version of Claude Code reports. If a version never reports a field, its absence proves nothing.

Measured with 1.0.128, 2.0.0, 2.0.76, 2.1.0, 2.1.32, 2.1.50, 2.1.69, 2.1.105, 2.1.142, 2.1.176, 2.1.197 and 2.1.330
against an API that kept the bill. A version in between is trusted only with what is true of both its neighbours.
"""

from __future__ import annotations

import re

Version = tuple[int, int, int]

_NUMBERS = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")
# Result lines of 2.1.0 and older have no `stop_reason`; those of 2.1.32 and 2.1.50 have one that is always null.
_TELLS_STOP_REASON: Version = (2, 1, 69)
# 2.1.0 and older print the stop reason with the last block of any message, 2.1.32 only if it was not streamed.
_TELLS_LOST_ANSWERS: Version = (2, 1, 32)
# Outside the conversation, and without waiting for the answers, versions up to 2.1.50 ask haiku about every
# command, 2.0.76 and 2.1.0 warm up subagents on several models, and 2.1.105 asks haiku for a title; requests still
# running at the end of the turn are reported nowhere, and none of these are in the session files. 2.1.69 makes no
# such requests. 2.1.142 and newer request a title unless CLAUDE_CODE_DISABLE_TERMINAL_TITLE is set; we set it.
_KEEPS_WHOLE_BOOKS: tuple[tuple[Version, Version | None], ...] = (((2, 1, 69), (2, 1, 70)), ((2, 1, 142), None))
# In 2.1.330, `modelUsage` counts over the session, and another field has the usage since the last result.
_COUNTS_BY_PROCESS: Version = (2, 1, 197)


def read_version(text: object) -> Version | None:
    """Return a version such as 2.1.330; None if the text is none, as for versions that do not report theirs."""
    found = _NUMBERS.match(text) if isinstance(text, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def tells_stop_reason(version: Version | None) -> bool:
    """Return True if result lines always have the last answer's stop reason, so that null means it broke off."""
    return version is not None and version >= _TELLS_STOP_REASON


def tells_lost_answers(version: Version | None) -> bool:
    """Return True if a message with an immediate stop reason was requested again because its stream broke off."""
    return version is not None and version >= _TELLS_LOST_ANSWERS


def counts_by_process(version: Version | None) -> bool:
    """Return True if `modelUsage` counts from the process's start when no usage since the last result is given."""
    return version is not None and version <= _COUNTS_BY_PROCESS


def asks_aside(version: Version | None) -> bool:
    """Return True if this version may have made model requests that it reports nowhere."""
    if version is None:
        return True
    return not any(first <= version and (end is None or version < end) for first, end in _KEEPS_WHOLE_BOOKS)
