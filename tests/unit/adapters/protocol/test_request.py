"""What a producer may ask for, and how a bad request is refused: by the name of its field."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import InvalidRequest
from adapters.protocol.output_schema import is_plain, output_fault
from adapters.protocol.request import MAX_PROMPT_BYTES, TurnRequest
from adapters.protocol.workspace import matcher

LEAST: dict[str, Any] = {"prompt": "Fix the bug", "workspace": "/srv/repo"}
WHOLE: dict[str, Any] = {
    "version": 1,
    "turn_id": "issue-17.1",
    "prompt": "Fix the bug — büg",
    "workspace": "/srv/made/issue-17/workspace",
    "mounts": [],
    "worktree": None,
    "collect": None,
    "keep_workspace": False,
    "agent": "claude-code",
    "needs": {"language": "python", "live": True, "billing": ["subscription", "api"]},
    "plan": False,
    "host": "build-3",
    "host_labels": {"gpu": "yes"},
    "isolation": "sandbox",
    "sandbox_network": "none",
    "max_memory": 2**30,
    "max_processes": 500,
    "max_cpus": 1.5,
    "max_disk": 2**30,
    "failure": "return",
    "on_host_lost": "any_host",
    "session_id": "8c3f3a5e-52a8-4a34-9f0a-0d8a3b7c0c11",
    "labels": {"team": "core", "issue": "17"},
    "producer": "issue-bot",
    "priority": 5,
    "env": ["GITHUB_TOKEN"],
    "options": {"model": "claude-sonnet-4-5", "max_turns": 5},
    "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "turn_timeout_ms": 60_000,
    "read_timeout_ms": 5_000,
    "stall_timeout_ms": 0,
    "deadline": "2030-01-01T00:00:00Z",
    "max_total_tokens": 100_000,
    "max_cost_usd": 1.5,
    "max_attempts": 3,
    "max_paid_retries": 0,
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "max_retry_backoff_ms": 300_000,
}


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("nope", 1, "not a known field"),
        ("prompt", "", "empty"),
        ("prompt", " \n\t", "empty"),
        ("prompt", "a\0b", "NUL"),
        ("prompt", "\ud800", "not valid Unicode"),
        ("prompt", "é" * (MAX_PROMPT_BYTES // 2 + 1), "10,485,760"),
        ("prompt", 5, "string"),
        ("prompt", None, "string"),
        ("workspace", "repo", "absolute"),
        ("workspace", "./repo", "absolute"),
        ("workspace", "~/repo", "absolute"),
        ("workspace", "", "required"),
        ("workspace", "/a\0b", "NUL"),
        ("workspace", "/\ud800", "not valid Unicode"),
        ("agent", "", "match"),
        ("agent", "../claude", "match"),
        ("host", "a b", "match"),
        ("host", "a\n", "match"),
        ("session_id", "-x", "match"),
        ("session_id", "a;b", "match"),
        ("turn_id", "a/b", "match"),
        ("turn_id", "x" * 129, "match"),
        ("version", 2, "1"),
        ("env", "PATH", "JSON list"),
        ("labels", [], "JSON object"),
        ("options", [], "JSON object"),
        ("turn_timeout_ms", 0, "greater"),
        ("turn_timeout_ms", -1, "greater"),
        ("turn_timeout_ms", 1.5, "integer"),
        ("turn_timeout_ms", 10**30, "less"),
        ("read_timeout_ms", -1, "greater"),
        ("stall_timeout_ms", -1, "greater"),
        ("max_total_tokens", 0, "greater"),
        ("max_total_tokens", -1, "greater"),
        ("max_cost_usd", 0, "greater"),
        ("max_cost_usd", -0.5, "greater"),
        ("max_cost_usd", float("nan"), "finite"),
        ("max_cost_usd", float("inf"), "finite"),
        ("max_attempts", 0, "greater"),
        ("max_attempts", 101, "less"),
        ("max_paid_retries", -1, "greater"),
        ("max_paid_retries", 101, "less"),
        ("max_retry_backoff_ms", 0, "greater"),
        ("deadline", "tomorrow", "valid datetime"),
        ("deadline", "2030-01-01T00:00:00", "timezone"),
        ("output_schema", True, "JSON object"),
        ("output_schema", {"type": "nonsense"}, "not a JSON Schema"),
        ("output_schema", {"type": "object", "properties": 5}, "not a JSON Schema"),
        ("output_schema", {"$schema": 5}, "not a JSON Schema"),
        ("output_schema", {"type": "array"}, "must describe an object"),
        ("output_schema", nested(45), "nested too deeply"),  # 91 levels
        ("output_schema", {"properties": {"n": {"$ref": "#/$defs/n"}}}, "cannot be resolved: #/$defs/n"),
        ("output_schema", {"properties": {"n": {"$ref": "http://127.0.0.1:9/n"}}}, "cannot be resolved: http"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(field: str, value: object, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse(LEAST | {field: value})

    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field}: ")
    assert says in refused.value.message
    assert not refused.value.retryable


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("env", ["GOOD", "A B"], "env.1"),
        ("env", ["A=B"], "env.0"),
        ("env", ["1A"], "env.0"),
        ("env", [""], "env.0"),
        ("labels", {"team": ""}, "labels.team"),
        ("labels", {"team": "a\nb"}, "labels.team"),
        ("labels", {"team": 5}, "labels.team"),
        ("labels", {"a b": "x"}, "labels.a b.[key]"),
    ],
)
def test_bad_part_of_a_field_is_named(field: str, value: object, named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse(LEAST | {field: value})

    assert refused.value.field == named


@pytest.mark.parametrize("field", ["prompt", "workspace"])
def test_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse({key: value for key, value in LEAST.items() if key != field})

    assert refused.value.field == field


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse({"prompt": "", "workspace": "x", "max_attempts": 0})

    for field in ("prompt", "workspace", "max_attempts"):
        assert f"{field}: " in refused.value.message


def test_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse(LEAST | {"agent": "s3cret value", "env": ["TOKEN=s3cret"], "nope": "s3cret"})

    assert "s3cret" not in refused.value.message


def test_fault_deep_in_a_field_has_a_short_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse(LEAST | {"output_schema": nested(1000)})

    assert refused.value.field is not None
    assert refused.value.field.startswith("output_schema.")
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("document", [None, [], "text", 5, b"{}"])
def test_request_is_one_object(document: object) -> None:
    with pytest.raises(InvalidRequest) as refused:
        TurnRequest.parse(document)

    assert refused.value.field == "request"


def test_least_request_leaves_everything_else_to_the_worker() -> None:
    request = TurnRequest.parse(LEAST)

    assert request.agent == "claude-code"
    assert (request.host, request.session_id, request.deadline) == (None, None, None)
    assert request.stall_timeout_ms is request.turn_timeout_ms is request.max_attempts is None


def test_stall_timeout_of_0_turns_it_off_and_is_kept() -> None:
    assert TurnRequest.parse(LEAST | {"stall_timeout_ms": 0}).stall_timeout_ms == 0


def test_prompt_of_10_mebibytes_is_taken() -> None:
    assert len(TurnRequest.parse(LEAST | {"prompt": "x" * MAX_PROMPT_BYTES}).prompt) == MAX_PROMPT_BYTES


def test_task_id_stands_in_for_a_missing_turn_id() -> None:
    assert TurnRequest.parse(LEAST, turn_id="task-1").turn_id == "task-1"
    assert TurnRequest.parse(LEAST | {"turn_id": "mine"}, turn_id="task-1").turn_id == "mine"


def test_turns_without_an_id_get_one_each() -> None:
    assert TurnRequest.parse(LEAST).turn_id != TurnRequest.parse(LEAST).turn_id


def test_deadline_is_a_moment_in_any_zone() -> None:
    request = TurnRequest.parse(LEAST | {"deadline": "2030-01-01T02:00:00+02:00"})

    assert request.deadline_at == datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def test_request_survives_json_both_ways() -> None:
    request = TurnRequest.parse(WHOLE)
    document = json.loads(request.model_dump_json())

    assert TurnRequest.parse(document) == request
    assert document["options"] == WHOLE["options"]
    assert set(document) == set(WHOLE)


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text))
def test_any_text_is_a_prompt_and_arrives_as_it_was(prompt: str) -> None:
    request = TurnRequest.parse(LEAST | {"prompt": prompt})

    assert TurnRequest.model_validate_json(request.model_dump_json()).prompt == prompt


def test_published_schema_is_valid_and_takes_what_we_take() -> None:
    schema = TurnRequest.model_json_schema()
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    validator.check_schema(schema)

    assert "required" not in schema
    assert schema["oneOf"][:2] == [{"required": ["prompt"]}, {"required": ["task"]}]
    assert schema["additionalProperties"] is False
    for document in (LEAST, WHOLE):
        validator(schema).validate(document)
    for field, bad in (
        ("nope", 1),
        ("agent", "a b"),
        ("max_attempts", 0),
        ("turn_timeout_ms", -1),
        ("version", 2),
    ):
        assert not validator(schema).is_valid(LEAST | {field: bad})


MOUNT = {"host_path": "/srv/rules"}
TREE = {"repository": "/srv/repo"}


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({}, "workspace", "required"),
        ({"workspace": "/srv", "mounts": [MOUNT]}, "workspace", "give only one"),
        ({"mounts": [MOUNT], "worktree": TREE}, "mounts", "give only one"),
        ({"worktree": TREE, "session_id": "s"}, "session_id", "its own workspace"),
        ({"workspace": "/srv", "collect": {"patch": True}}, "collect", "of this turn or an earlier one"),
        ({"workspace": "/srv", "keep_workspace": True}, "keep_workspace", "applies only to a per-turn workspace"),
        ({"mounts": [{"host_path": "rules"}]}, "mounts.0.host_path", "absolute"),
        ({"mounts": [{"host_path": "/a\0b"}]}, "mounts.0.host_path", "NUL"),
        ({"mounts": [{"host_path": "/"}]}, "mounts.0", "mount_path"),
        ({"mounts": [{"host_path": "/srv/.git"}]}, "mounts.0", "mount_path"),
        ({"mounts": [MOUNT | {"mount_path": "/etc"}]}, "mounts.0.mount_path", "relative"),
        ({"mounts": [MOUNT | {"mount_path": "a/../../b"}]}, "mounts.0.mount_path", "relative"),
        ({"mounts": [MOUNT | {"mount_path": "."}]}, "mounts.0.mount_path", "relative"),
        ({"mounts": [MOUNT | {"mount_path": "a/.git/hooks"}]}, "mounts.0.mount_path", ".git"),
        ({"mounts": [MOUNT | {"max_bytes": -1}]}, "mounts.0.max_bytes", "0"),
        ({"mounts": [MOUNT | {"include_glob": [""]}]}, "mounts.0.include_glob.0", "1 character"),
        ({"mounts": [MOUNT, MOUNT | {"mount_path": "rules/more"}]}, "mounts", "same place"),
        ({"worktree": {"repository": "repo"}}, "worktree.repository", "absolute"),
        ({"worktree": TREE | {"ref": "--force"}}, "worktree.ref", "match"),
        ({"worktree": TREE | {"ref": "a b"}}, "worktree.ref", "match"),
        ({"worktree": TREE, "collect": {"max_bytes": 0}}, "collect.max_bytes", "1"),
        ({"worktree": TREE, "collect": {"pach": True}}, "collect.pach", "not a known field"),
    ],
)
def test_workspace_that_cannot_be_brought_is_refused_by_the_name_of_its_field(
    given: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        TurnRequest.parse({"prompt": "Fix the bug", **given})
    assert refusal.value.field == field
    assert says in str(refusal.value)


def test_turn_that_brings_its_workspace_needs_to_name_none() -> None:
    validator = jsonschema.Draft202012Validator(TurnRequest.model_json_schema())
    for bringing in ({"mounts": [MOUNT]}, {"worktree": TREE}):
        document = {"prompt": "Fix the bug", **bringing}
        validator.validate(document)
        request = TurnRequest.parse(document)
        assert request.brings_workspace
        assert TurnRequest.model_validate_json(request.model_dump_json()) == request
    assert not validator.is_valid({"prompt": "Fix the bug"})


def test_prompt_says_what_lies_where_in_a_workspace_that_was_made() -> None:
    mounts = [MOUNT | {"mount_path": "docs/rules", "include_glob": ["*.md"], "exclude_glob": ["old/*"]}]
    collect = {"patch": True, "files": ["*.md", "out/*"]}
    request = TurnRequest.parse({"prompt": "Fix the bug", "mounts": mounts, "collect": collect})
    made = request.working_in("/made/here")
    assert made.workspace == "/made/here"
    assert made.prompt == (
        "Fix the bug\n\n# Workspace\n\nYour working directory, /made/here, was made for this task.\n"
        "It contains copies; changes to them do not affect the originals:\n\n"
        "- docs/rules: from /srv/rules (only *.md; without old/*)\n\n"
        "When you finish, these are collected from it: all changes, as a patch; files that match *.md, out/*."
    )


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.pyc", "a.pyc", True),
        ("*.pyc", "a/b/c.pyc", True),
        ("__pycache__/*", "src/__pycache__/a.py", True),
        ("node_modules", "web/node_modules/x/y.js", True),
        ("node_modules/", "node_modules", True),
        ("src/*.py", "src/deep/a.py", True),
        ("src/*.py", "lib/a.py", False),
        ("a", "ab", False),
        ("[ab].txt", "x/b.txt", True),
        ("*", "new\nline", True),
    ],
)
def test_glob_matches_from_any_directory_on(glob: str, path: str, matches: bool) -> None:
    assert matcher([glob])(path) is matches
    assert matcher([])(path) is False


def test_request_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TurnRequest.parse(LEAST).prompt = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("output", "fault"),
    [
        ({"n": 3}, None),
        ({"n": "three"}, "n: 'three' is not of type 'integer'"),
        ({}, "the whole: 'n' is a required property"),
        ([], "the whole: [] is not of type 'object'"),
    ],
)
def test_structured_output_is_held_against_its_schema(output: object, fault: str | None) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert output_fault(schema, output) == fault


def test_output_is_compared_with_what_its_schema_refers_to_and_nothing_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    schema: dict[str, Any] = {"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/n"}}}
    schema["default"] = {"$ref": "nowhere"}
    TurnRequest.parse(LEAST | {"output_schema": schema})
    assert output_fault(schema, {"n": 1}) is None
    assert output_fault(schema, {"n": "x"}) == "n: 'x' is not of type 'integer'"
    standard = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    TurnRequest.parse(LEAST | {"output_schema": standard})
    assert output_fault(standard, {"type": 5}) is not None
    # Behind an $id, references are not looked at before.
    hidden = {"properties": {"n": {"$id": "http://127.0.0.1:9/", "$ref": "n"}}}
    TurnRequest.parse(LEAST | {"output_schema": hidden})
    assert output_fault(hidden, {"n": 1}) == "n, to which output_schema refers, does not exist"
    assert not fetched


def test_a_schema_whose_pattern_repeats_too_often_is_refused() -> None:
    schema = {"properties": {"n": {"pattern": "a{99999999999999}"}}}
    with pytest.raises(InvalidRequest, match="too large"):
        TurnRequest.parse(LEAST | {"output_schema": schema})


def test_a_pattern_that_an_old_draft_lets_pass_is_a_fault_of_the_output() -> None:
    schema: dict[str, Any] = {"$schema": "http://json-schema.org/draft-04/schema#", "patternProperties": {"(": {}}}
    TurnRequest.parse(LEAST | {"output_schema": schema})
    assert "cannot be applied" in (output_fault(schema, {"n": 1}) or "")


_TREE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}}}


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"type": "object", "properties": {"id": {"type": "string"}, "pattern": {"enum": ["a"]}}}, True),
        ({"$defs": {"n": {"type": "integer"}}, "properties": {"n": {"anyOf": [{"$ref": "#/$defs/n"}]}}}, True),
        ({"properties": {"n": {"items": {"pattern": "a"}}}}, False),
        ({"patternProperties": {"a": {}}}, False),
        ({"properties": {"n": {"uniqueItems": True}}}, False),
        ({"$defs": {"tree": _TREE}, "$ref": "#/$defs/tree"}, False),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, False),
        ({"properties": {"n": {"$id": "http://127.0.0.1:9/", "type": "integer"}}}, False),
    ],
)
def test_a_schema_is_plain_where_its_cost_shows(schema: dict[str, Any], plain: bool) -> None:
    assert is_plain(schema) is plain


def test_a_schema_that_doubles_at_each_reference_is_not_plain() -> None:
    defined = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(40)}
    assert not is_plain({"$defs": {**defined, "n40": {"type": "object"}}, "$ref": "#/$defs/n0"})
