"""Tool permissions: rules, then the producer, then a default.

A rule is `Tool` or `Tool(pattern)`, a subset of Claude Code's syntax that needs no knowledge of a shell: `*`
matches anything, also in the tool's name (`mcp__files__*`), and `prefix:*` matches the prefix with or without
arguments. The pattern is matched against the call's main argument: the command, path, URL or pattern; of several
commands and paths, an allow rule must match all, a deny rule any. A pattern never allows a command that a shell
would split or expand; deny rules check each of its parts.
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
_SHELL = re.compile(r"[;&|<>$`\n\\(){}]")  # joins, redirects or expands commands
_PARTS = re.compile(r"[;&|\n`(){}]|\$\(")


@dataclass(frozen=True, slots=True)
class Rule:
    """One permission rule."""

    tool: str
    pattern: str | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule in a text. Raise ValueError if it is invalid."""
        match = _RULE.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"is not a rule like Tool or Tool(pattern): {text!r}")
        pattern = match["pattern"]
        return cls(match["tool"], None if pattern == "*" else pattern)

    def allows(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Return True if the rule matches the whole call."""
        covered = (self._covers(key, value) for key, value in _compared(arguments))
        return self._names(tool) and (self.pattern is None or all(covered))

    def _covers(self, key: str, value: str) -> bool:
        if key == "command" and _SHELL.search(value):
            return False
        return self._matches(normpath(value) if key in _PATHS else value)

    def denies(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Return True if the rule matches the call or any command in it."""
        met = (self._meets(key, value) for key, value in _compared(arguments))
        return self._names(tool) and (self.pattern is None or any(met))

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
        """Return the policy of these rules. Raise ValueError if one is invalid."""
        return cls(tuple(map(Rule.parse, allow)), tuple(map(Rule.parse, deny)))

    def denied(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Return True if a deny rule matches the call, which overrides everything else."""
        return any(rule.denies(tool, arguments) for rule in self.deny)

    def allowed(self, tool: str, arguments: Mapping[str, JsonValue]) -> bool:
        """Return True if an allow rule matches the call."""
        return any(rule.allows(tool, arguments) for rule in self.allow)


def _compared(arguments: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """Return the main argument and all others that name a command or path: third-party tools may have several."""
    given = [(key, value) for key in _ARGUMENTS if isinstance(value := arguments.get(key), str)]
    return given[:1] + [pair for pair in given[1:] if pair[0] in _ACTS] or [("", "")]
