"""Keeps what a version printed, what it was billed and what it remembers, for tests that run without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adapters.contract import AgentConfig, Session
from adapters.registry import BUILT_IN
from adapters.request import TurnRequest
from adapters.result import TurnResult
from tests.agents.scenes import Scene
from tests.agents.stage import Stage
from tests.model_api import Bill

DATA = Path(__file__).parents[1] / "data"
# Each of these has an outcome, or a bill, of its own kind; of one process each.
RECORDED = (Scene.SUCCESS, Scene.RESUME, Scene.SCHEMA, Scene.UNAUTHORIZED, Scene.CUT, Scene.CANCEL)
_CHECKOUT = str(Path(__file__).parents[2])
_HOME = "/home/runturn"
_LONG = 400  # characters of a text that nobody judges by
_DROPPED = frozenset({"base_instructions", "tools", "slash_commands", "agents", "skills", "plugins"})


def record(stage: Stage, scene: Scene, result: TurnResult, bill: Bill) -> None:
    """Write the recording of a scene whose turn had one attempt."""
    if scene not in RECORDED or result.attempts != 1:
        return
    folder = DATA / stage.version.agent / "versions" / stage.version.number
    folder.mkdir(parents=True, exist_ok=True)
    name, printed = str(scene), stage.kept / f"{result.turn_id}.1"
    _write(folder / f"{name}.jsonl", map(_small, _lines(printed.with_name(f"{printed.name}.out"))), stage)
    _write(folder / f"{name}.session.jsonl", filter(None, map(_remembered, _session(stage, result))), stage)
    truth = {
        "exit_code": result.exit_code,
        "stderr": "\n".join(_lines(printed.with_name(f"{printed.name}.err")))[-_LONG:],
        "requests": len(bill.requests),
        "billed": {
            model: [used.input, used.output, used.cache_read, used.cache_creation]
            for model, used in sorted(bill.by_model.items())
        },
    }
    text = json.dumps(truth, indent=1, sort_keys=True)
    (folder / f"{name}.truth.json").write_text(_scrubbed(text, stage) + "\n")


def _write(path: Path, lines: Iterator[str], stage: Stage) -> None:
    text = "".join(f"{_scrubbed(line, stage)}\n" for line in lines)
    path.write_text(text) if text else path.unlink(missing_ok=True)


def _scrubbed(text: str, stage: Stage) -> str:
    """Without what tells of this machine."""
    places = (
        (str(stage.root), _HOME),
        (_CHECKOUT, "/opt/runturn"),
        (stage.actor.api.base_url, "http://127.0.0.1:1"),
    )
    for place, other in places:
        text = text.replace(place, other)
    slug = "".join(c if c.isalnum() else "-" for c in str(stage.root))
    return text.replace(slug, _HOME.replace("/", "-"))


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.exists() else []


def _session(stage: Stage, result: TurnResult) -> Iterator[str]:
    """What the turn added to the session files that its adapter reads."""
    if result.session_id is None:
        return
    entry = next(entry for entry in BUILT_IN if entry.name == stage.version.agent)
    adapter = entry.load()(AgentConfig())
    request = TurnRequest.parse({"prompt": "x", "workspace": "/"})
    files = adapter.build(request, Session(result.session_id, resume=True)).session_files
    root = Path(
        stage.actor.environment.get(files.root_env, Path(stage.actor.environment["HOME"], files.root_default))
    )
    before = stage.remembered.get(result.turn_id, {})
    for pattern in files.patterns:
        for path in sorted(root.glob(pattern)):
            yield from path.read_bytes()[before.get(path, 0) :].decode(errors="replace").splitlines()


def _small(line: str) -> str:
    """A line as printed, without long lists that nobody reads."""
    try:
        return _compact(json.loads(line))
    except ValueError:
        return line


def _remembered(line: str) -> str | None:
    """A record of a session file; None for one that no adapter reads."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if record.get("type") in ("user", "queue-operation", "file-history-snapshot", "attachment"):
        return None
    return _compact(record)


def _compact(record: object) -> str:
    return json.dumps(_shorter(record), separators=(",", ":"), ensure_ascii=False)


def _shorter(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shorter(inner) for name, inner in value.items() if name not in _DROPPED}
    if isinstance(value, list):
        return [_shorter(inner) for inner in value]
    if isinstance(value, str) and len(value) > _LONG:
        return value[:_LONG]
    return value
