"""Who may use which tool: rules, then the producer, then a default.

A rule is `Tool` or `Tool(pattern)`, as Claude Code writes them, in a subset that can be read without knowing a
shell: `*` stands for anything, also in the tool's name (`mcp__files__*`), and `prefix:*` for the prefix alone or
with arguments. The pattern is compared with the call's main argument: the command, path, URL or pattern;
of several commands and paths, an allow rule has to cover all, a deny rule any.
A pattern never allows a command that a shell would take apart or fill in; deny rules look at each of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from posixpath import normpath

from pydantic import JsonValue

_RULE = re.compile(r"(?P<tool>[A-Za-z_][\w.*-]*)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_ARGUMENTS = ("command", "file_path", "notebook_path", "path", "url", "query", "pattern", "skill", "subagent_type")
_PATHS = ("file_path", "notebook_path", "path")
_ACTS = ("command", *_PATHS)
_SHELL = re.compile(r"[;&|<>$`\n\\(){}]")  # what joins, redirects or fills in commands
_PARTS = re.compile(r"[;&|\n`(){}]|\$\(")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    tool: str
    pattern: str | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Read one; raises ValueError."""
        match = _RULE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"is no rule like Tool or Tool(pattern): {text!r}")
        pattern = match["pattern"]
        return cls(match["tool"], None if pattern == "*" else pattern)

    def allows(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether the whole call is covered."""
        if not self._names(tool):
            return False
        if self.pattern is None:
            return True
        return all(self._covers(key, value) for key, value in _compared(arguments))

    def _covers(self, key: str, value: str) -> bool:
        if key == "command" and _SHELL.search(value):
            return False
        return self._matches(normpath(value) if key in _PATHS else value)

    def denies(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether the call, or any command in it, is covered."""
        if not self._names(tool):
            return False
        if self.pattern is None:
            return True
        return any(self._meets(key, value) for key, value in _compared(arguments))

    def _meets(self, key: str, value: str) -> bool:
        if key == "command":
            return any(self._matches(part.strip()) for part in (value, *_PARTS.split(value)))
        return self._matches(value) or (key in _PATHS and self._matches(normpath(value)))

    def _names(self, tool: str) -> bool:
        return fnmatchcase(tool, self.tool.replace("[", "[[]"))

    def _matches(self, value: str) -> bool:
        assert self.pattern is not None  # noqa: S101 - for the type checker
        if self.pattern.endswith(":*"):
            prefix = self.pattern[:-2]
            return value == prefix or value.startswith(prefix + " ")
        return fnmatchcase(value, self.pattern.replace("[", "[[]").replace("?", "[?]"))


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules of a turn."""

    allow: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, allow: Sequence[str], deny: Sequence[str]) -> Policy:
        """Read the rules; raises ValueError."""
        return cls(tuple(map(Rule.parse, allow)), tuple(map(Rule.parse, deny)))

    def denied(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether a deny rule covers the call; nothing allows it then."""
        return any(rule.denies(tool, arguments) for rule in self.deny)

    def allowed(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Whether an allow rule covers it."""
        return any(rule.allows(tool, arguments) for rule in self.allow)


def _compared(arguments: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """The main argument, and all others that act: a third party's tool may take a second path or command."""
    given = [(key, value) for key in _ARGUMENTS if isinstance(value := arguments.get(key), str)]
    return given[:1] + [pair for pair in given[1:] if pair[0] in _ACTS] or [("", "")]
