"""The published JSON Schemas are those of the code. `make docs` writes them anew."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import jsonschema
import pytest
from pydantic import BaseModel

from adapters.protocol.request import TurnRequest
from adapters.protocol.result import TurnResult
from adapters.protocol.session_request import SessionRequest
from adapters.protocol.session_result import SessionResult
from tests.support.places import ROOT

DOCS = ROOT / "docs"
PUBLISHED: dict[str, type[BaseModel]] = {
    "turn-request.schema.json": TurnRequest,
    "turn-result.schema.json": TurnResult,
    "session-request.schema.json": SessionRequest,
    "session-result.schema.json": SessionResult,
}


def rendered(model: type[BaseModel]) -> str:
    mode = "validation" if model in (TurnRequest, SessionRequest) else "serialization"
    return json.dumps(model.model_json_schema(mode=mode), indent=2) + "\n"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_schema_is_that_of_the_code(name: str) -> None:
    assert (DOCS / name).read_text() == rendered(PUBLISHED[name]), "run: make docs"
    jsonschema.Draft202012Validator.check_schema(json.loads((DOCS / name).read_text()))


def test_make_docs_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Imported here, since it imports this module.
    make_docs = importlib.import_module("tests.docs.__main__")
    monkeypatch.setattr(make_docs, "PAGES", ())
    monkeypatch.setattr(sys.modules[__name__], "DOCS", tmp_path)
    make_docs.main()
    assert {path.name for path in tmp_path.iterdir()} == PUBLISHED.keys()


def test_schema_refuses_what_the_code_refuses() -> None:
    validator = jsonschema.Draft202012Validator(json.loads((DOCS / "turn-request.schema.json").read_text()))
    good = {"prompt": "fix it", "workspace": "/srv/app"}
    assert validator.is_valid(good)
    for fault in ({"promt": "x"}, {"max_attempts": 0}, {"turn_timeout_ms": -1}, {"version": 2}):
        assert not validator.is_valid(good | fault)
    task = {"description": "fix it"}
    assert validator.is_valid({"task": task, "workspace": "/srv/app"})
    after = {"after": {"prompt": "text"}}
    assert validator.is_valid(after)
    assert validator.is_valid(good | after)
    assert not validator.is_valid({"after": {"promt": "text"}})
    for bad in ({"prompt": "x"}, {"workspace": "/srv/app"}, good | {"task": task}, []):
        assert not validator.is_valid(bad)


def write() -> None:
    """Publish them."""
    for name, model in PUBLISHED.items():
        (DOCS / name).write_text(rendered(model))
