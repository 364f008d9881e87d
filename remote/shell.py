"""Programs for a host's shell: how script, arguments and environment travel to it.

A channel runs one constant command, which reads a program and evaluates it. So nothing depends on the login shell,
nothing is limited to the 128 KiB of an argument, and nothing shows in the host's process list.

The program comes after a line with its size, for `head`: a shell's own `read` takes one system call a byte. What
else a channel is sent has to wait until the program has answered, because some heads read ahead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

# Where sh is bash, it would lose bytes that its locale does not know, and could take them for quotes. The slow dd
# is for hosts without a head that counts bytes; the program will name what is missing.
BOOT_SCRIPT = (  # for `sh -c`
    'locale=${LC_ALL-} LC_ALL=C;read -r n;{ s=$(head -c "$n")||s=$(dd bs=1 count="$n");} 2>/dev/null;eval "$s"'
)
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
    """Return what makes a channel set `variables`, load `functions` and call `entry` with `args`.

    The directories of `path` go before the host's PATH, for all that runs there.
    """
    words = [b"{\n"]  # without its end, it is an error and no program: nothing runs that was cut off on its way
    words += [b"PATH=" + quote(path) + b":$PATH\nexport PATH\n"] if path else []
    words += [assignment(name, str(value)) for name, value in (variables or {}).items()]
    words.append(assignment("RUNTURN_SCRIPT", functions))
    words.append(b" ".join([b"set --", *map(quote, args)]) + b"\n")
    words.append(b'LC_ALL=$locale\neval "$RUNTURN_SCRIPT"\n')  # in the host's locale again
    words.append(entry.encode() + b' "$@"\n}')
    return frame(b"".join(words))


def frame(text: bytes) -> bytes:
    """Return a program as BOOT reads it."""
    return b"%d\n" % len(text) + text


def assignment(name: str, value: str) -> bytes:
    """Return the shell line that gives the variable `name` this value."""
    return name.encode() + b"=" + quote(value) + b"\n"
