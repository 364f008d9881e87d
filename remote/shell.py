"""Programs for a host's shell: how script, arguments and environment travel to it.

A channel runs one constant command, which reads one line and evaluates it. So nothing depends on the login shell,
nothing is limited to the 128 KiB of an argument, and nothing shows in the host's process list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

# Where sh is bash, it would lose bytes that its locale does not know, and could take them for quotes.
BOOT_SCRIPT = 'locale=${LC_ALL-} LC_ALL=C;IFS= read -r s;eval "$(printf %b "$s")"'  # for `sh -c`
BOOT = f"exec sh -c '{BOOT_SCRIPT}'"  # for a login shell, whichever it is

_COMMENT_OR_INDENT = re.compile(r"^[ \t]*(?:#.*\n)?", re.MULTILINE)


def quote(value: str) -> bytes:
    """Return `value` as one shell word. Raises ValueError for a NUL, which no shell can hold.

    Bytes that are not UTF-8 are expected as `os.fsdecode` gives them.
    """
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"a NUL byte cannot be passed to a host: {value[:80]!r}")
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


@cache
def library(*names: str) -> str:
    """Return the shell functions of these files of `scripts/`, without comments: a shell reads them byte by byte.

    No string of theirs may span lines.
    """
    folder = resources.files(__package__) / "scripts"
    texts = [(folder / f"{name}.sh").read_text("utf-8") for name in names]
    return _COMMENT_OR_INDENT.sub("", "".join(texts))


def program(
    functions: str,
    entry: str,
    args: Sequence[str] = (),
    variables: Mapping[str, str | int] | None = None,
    path: str = "",
) -> bytes:
    """Return the line that makes a channel set `variables`, load `functions` and call `entry` with `args`.

    The directories of `path` go before the host's PATH, for all that runs there.
    """
    words = [b"PATH=" + quote(path) + b":$PATH\nexport PATH\n"] if path else []
    words += [assignment(name, str(value)) for name, value in (variables or {}).items()]
    words.append(assignment("RUNTURN_SCRIPT", functions))
    words.append(b" ".join([b"set --", *map(quote, args)]) + b"\n")
    words.append(b'LC_ALL=$locale\neval "$RUNTURN_SCRIPT"\n')  # in the host's locale again
    words.append(entry.encode() + b' "$@"')
    text = b"".join(words)
    return text.replace(b"\\", b"\\\\").replace(b"\n", b"\\n") + b"\n"


def assignment(name: str, value: str) -> bytes:
    """Return the shell line that gives the variable `name` this value."""
    return name.encode() + b"=" + quote(value) + b"\n"
