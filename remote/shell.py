"""Programs for a host's shell: how script, arguments and environment reach it.

A channel runs one constant command, which reads a program and evaluates it. So nothing depends on the login shell,
nothing is limited to the 128 KiB of an argument, and nothing shows in the host's process list.

The program follows a line with its size, for `head`: a shell's own `read` takes one system call per byte. Anything
else must wait until the program has answered, because some implementations of `head` read ahead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

# If sh is bash, it would drop bytes that are invalid in its locale, or mistake them for quotes. The slow dd is for
# hosts without head; the program then reports what is missing. Input that does not begin like a program is the
# middle of one whose beginning a start-up file has read.
BOOT_SCRIPT = (  # for `sh -c`
    "unset -v s n locale;locale=${LC_ALL-} LC_ALL=C;read -r n;"
    '{ s=$(head -c "$n")||s=$(dd bs=1 count="$n");} 2>/dev/null;case $s in "{"*) eval "$s";;esac'
)
BOOT = f"exec sh -c '{BOOT_SCRIPT}'"  # for any login shell

_SCRIPTS = resources.files(__package__) / "scripts"
_ASSIGNED = re.compile(r"(?:^|[\s;({])(?:([a-z_]+)=|read (?:-r )?([a-z_ ]+)|for ([a-z_]+) in)", re.MULTILINE)
_COMMENT_OR_INDENT = re.compile(r"^[ \t]*(?:#.*\n)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Quoted:
    """A shell word that is already quoted."""

    word: bytes


def quote(value: str | Quoted) -> bytes:
    """Return `value` as one shell word. Raise ValueError for a NUL, which no shell can store.

    Bytes that are not UTF-8 are expected as `os.fsdecode` decodes them.
    """
    if isinstance(value, Quoted):
        return value.word
    data = value.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise ValueError(f"a NUL byte cannot be passed to a host: {value[:80]!r}")
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


@cache
def library(*names: str) -> str:
    """Return the shell functions in these files of `scripts/`, without comments and indentation.

    None of their strings may span lines.
    """
    texts = [(_SCRIPTS / f"{name}.sh").read_text("utf-8") for name in names]
    return _COMMENT_OR_INDENT.sub("", "".join(texts))


@cache
def own_variables() -> frozenset[str]:
    """Return the names of all variables that `scripts/` assign."""
    texts = [_COMMENT_OR_INDENT.sub("", file.read_text("utf-8")) for file in _SCRIPTS.iterdir()]
    found = " ".join(name for text in texts for names in _ASSIGNED.findall(text) for name in names)
    return frozenset(found.split())


def program(
    functions: str,
    entry: str,
    args: Sequence[str | Quoted] = (),
    variables: Mapping[str, str | int] | None = None,
    path: str = "",
) -> bytes:
    """Return the program that sets `variables`, loads `functions` and calls `entry` with `args`.

    The directories of `path` go before the host's PATH, for everything that runs there.
    """
    # Unset: a variable that the host exports would stay exported, with our value, to everything that runs there.
    ours = own_variables() | set(variables or {})
    words = [f"unset -v {' '.join(sorted(ours))}\n".encode()]
    words += [b"PATH=" + quote(path) + b":$PATH\nexport PATH\n"] if path else []
    words += [assignment(name, str(value)) for name, value in (variables or {}).items()]
    words.append(assignment("RUNTURN_SCRIPT", functions))
    words.append(b" ".join([b"set --", *map(quote, args)]) + b"\n")
    words.append(b'LC_ALL=$locale\neval "$RUNTURN_SCRIPT"\n')  # in the host's locale again
    words.append(entry.encode() + b' "$@"')
    return frame(b"".join(words))


def frame(text: bytes) -> bytes:
    """Return a program as BOOT reads it. Without its last byte it is an error: a truncated program never runs."""
    compound = b"{\n" + text + b"\n}"
    return b"%d\n" % len(compound) + compound


def assignment(name: str, value: str) -> bytes:
    """Return the shell line that assigns `value` to the variable `name`."""
    return name.encode() + b"=" + quote(value) + b"\n"
