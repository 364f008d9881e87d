"""Rules for tools: what they allow, what they deny, and what they leave open."""

from __future__ import annotations

import pytest

from adapters.claude_sdk.policy import Policy, Rule


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "covered"),
    [
        ("Bash", "Bash", {"command": "rm -rf /"}, True),
        ("Bash(*)", "Bash", {"command": "a; b"}, True),
        ("Bash", "BashOutput", {}, False),
        ("Bash(git status)", "Bash", {"command": "git status"}, True),
        ("Bash(git status)", "Bash", {"command": "git status -s"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log -1"}, True),
        ("Bash(git:*)", "Bash", {"command": "git"}, True),
        ("Bash(git:*)", "Bash", {"command": "gitk"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log; rm x"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log && rm x"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log > /etc/passwd"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log $(rm x)"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log `rm x`"}, False),
        ("Bash(git:*)", "Bash", {"command": "git log\nrm x"}, False),
        ("Read(/w/src/*)", "Read", {"file_path": "/w/src/a.py"}, True),
        ("Read(/w/src/*)", "Read", {"file_path": "/w/src/../../etc/passwd"}, False),
        ("mcp__files__*", "mcp__files__read", {}, True),
        ("mcp__files__*", "mcp__others__read", {}, False),
        ("WebFetch(https://example.org/*)", "WebFetch", {"url": "https://example.org/a"}, True),
        ("Read(a[b]?)", "Read", {"file_path": "a[b]?"}, True),
    ],
)
def test_what_an_allow_rule_covers(rule: str, tool: str, arguments: dict[str, str], covered: bool) -> None:
    assert Policy.of([rule], []).allowed(tool, arguments) is covered


@pytest.mark.parametrize(
    ("rule", "command", "covered"),
    [
        ("Bash(rm:*)", "rm -rf /", True),
        ("Bash(rm:*)", "cd / && rm -rf x", True),
        ("Bash(rm:*)", "echo $(rm x)", True),
        ("Bash(rm:*)", "ls | xargs; rm x", True),
        ("Bash(rm:*)", "(rm x)", True),
        ("Bash(rm:*)", "ls\nrm x", True),
        ("Bash(rm:*)", "rmdir x", False),
        ("Bash(*secret*)", "cat secret.txt", True),
    ],
)
def test_what_a_deny_rule_covers(rule: str, command: str, covered: bool) -> None:
    assert Policy.of([], [rule]).denied("Bash", {"command": command}) is covered


def test_paths_are_denied_however_they_are_written() -> None:
    policy = Policy.of([], ["Read(/etc/*)"])
    assert policy.denied("Read", {"file_path": "/w/../etc/passwd"})
    assert not policy.denied("Read", {"file_path": "/w/etc"})


def test_another_argument_hides_nothing_from_the_rules() -> None:
    policy = Policy.of(["mcp__files__*(/w/*)"], ["mcp__files__*(/etc/*)"])
    assert policy.denied("mcp__files__read", {"command": "x", "path": "/etc/passwd"})
    assert policy.allowed("mcp__files__read", {"path": "/w/a"})
    for other in ({"path": "/home/a"}, {"command": "x"}):
        assert not policy.allowed("mcp__files__read", {"file_path": "/w/a", **other})
    assert Policy.of(["Grep(/w/*)"], []).allowed("Grep", {"path": "/w/a", "pattern": "x"})


@pytest.mark.parametrize("text", ["", "rm -rf", "Bash(", "(x)", "Bash()"])
def test_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rule"):
        Rule.parse(text)
