"""The tree of errors: as drawn, complete, and each with its own answer to `again?`."""

from __future__ import annotations

import re

import pytest

from adapters import errors
from adapters.errors import KINDS, Retry, TurnError

RETRIED = {
    "host_unreachable",
    "host_lost",
    "rate_limited",
    "overloaded",
    "api_unreachable",
    "turn_stalled",
    "read_timeout",
    "port_exit",
}
WAITING = {"session_in_use", "host_busy"}
FINAL = {
    "invalid_request",
    "invalid_workspace_cwd",
    "session_not_found",
    "agent_not_found",
    "host_key_changed",
    "host_auth_failed",
    "authentication_failed",
    "out_of_tokens",
    "turn_timeout",
    "deadline_exceeded",
    "isolation_unavailable",
    "memory_exceeded",
    "processes_exceeded",
    "budget_exceeded",
    "turn_failed",
    "turn_cancelled",
    "structured_output_missing",
}


def drawn() -> dict[str, tuple[str, str]]:
    """Each class in the docstring's tree: its parent and its kind."""
    found: dict[str, tuple[str, str]] = {}
    branch = ""
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│ ├└─]*)(\w+) *(\w*)", line):
            depth, name, kind = len(match[1]) // 4, match[2], match[3]
            if depth == 0:
                continue
            found[name] = ("TurnError" if depth == 1 else branch, kind if depth > 1 else "")
            branch = name if depth == 1 else branch
    return found


def test_drawn_tree_is_the_tree_of_classes() -> None:
    parents: list[type[TurnError]] = [TurnError, *TurnError.__subclasses__()]
    classes = {
        child.__name__: (parent.__name__, child.kind) for parent in parents for child in parent.__subclasses__()
    }

    assert drawn() == classes


def test_every_kind_of_the_architecture_exists() -> None:
    assert set(KINDS) >= RETRIED | WAITING | FINAL


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_kind_knows_whether_it_is_retried(kind: str) -> None:
    error = KINDS[kind]()
    expected = Retry.BACKOFF if kind in RETRIED else Retry.WAIT if kind in WAITING else Retry.NEVER

    assert error.retry is expected
    assert error.retryable is (expected is not Retry.NEVER)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_docstring_is_the_default_message(kind: str) -> None:
    error = KINDS[kind]()

    assert error.message == str(error) == (KINDS[kind].__doc__ or "").strip()
    assert error.message.endswith(".")
    assert KINDS[kind]("because").message == "because"


def test_kinds_are_unique_and_belong_to_leaves_only() -> None:
    leaves = [leaf for branch in TurnError.__subclasses__() for leaf in branch.__subclasses__()]

    assert len({leaf.kind for leaf in leaves}) == len(leaves) == len(KINDS)
    assert not any(branch.kind for branch in TurnError.__subclasses__())


def test_field_stands_before_the_message_of_a_bad_request() -> None:
    error = errors.InvalidRequest("is empty", field="prompt")

    assert (error.field, error.message) == ("prompt", "prompt: is empty")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_copy_with_another_retry_is_of_the_same_kind(kind: str) -> None:
    error = KINDS[kind]("because")
    error.retry_at = 9.0

    other = error.with_retry(Retry.BACKOFF, "because; and more")

    assert type(other) is type(error)
    assert other.message == str(other) == "because; and more"
    assert (other.retry, other.retry_at) == (Retry.BACKOFF, None)
    assert (error.message, error.retry, error.retry_at) == ("because", error.default_retry, 9.0)
    assert error.with_retry(Retry.NEVER).message == "because"


def test_copy_with_another_retry_keeps_the_field() -> None:
    other = errors.InvalidRequest("is empty", field="prompt").with_retry(Retry.NEVER)

    assert isinstance(other, errors.InvalidRequest)
    assert (other.field, other.message) == ("prompt", "prompt: is empty")
