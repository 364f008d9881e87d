"""`python -m tests.tools.agents.recorder [AGENT [VERSION [SCENE…]]]`: what each prints, remembers and is billed.

The agent is started as its adapter would have it, without a worker around it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil

from adapters.command import FILES, Command
from adapters.contract import Adapter, AgentConfig, Session
from adapters.protocol.request import TurnRequest
from adapters.registry import BUILT_IN
from tests.support.places import ROOT, TESTS
from tests.support.processes import of_turn
from tests.support.waiting import until
from tests.tools.agents.actors import ACTORS, Actor, key
from tests.tools.agents.records import lines_of, remembered, small, told
from tests.tools.agents.scenes import SCHEMA, Scene
from tests.tools.agents.stage import furnish
from tests.tools.agents.versions import Version, installed, versions

DATA = TESTS / "data"
# Each of these has an outcome, or a bill, of its own kind.
SCENES = (
    Scene.SUCCESS, Scene.RESUME, Scene.SCHEMA, Scene.REFUSED, Scene.UNAUTHORIZED, Scene.LIMITED, Scene.CUT,
    Scene.CANCEL, Scene.BESIDE, Scene.KILL_BESIDE,
)  # fmt: skip
_ENDED_BY = {Scene.CANCEL: signal.SIGINT, Scene.KILL_BESIDE: signal.SIGKILL}  # amid a tool
_LONG_S = 120.0
_TAIL = 3000  # characters of stderr: an error with its stack


@dataclass(frozen=True, slots=True)
class Process:
    """How one ended."""

    code: int
    stdout: str
    stderr: str
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Studio:
    """One version of an agent, with its API."""

    version: Version
    program: list[str]
    actor: Actor
    root: Path

    def record(self, scene: Scene) -> None:
        """Play the scene once, and write down what there is of each of its turns."""
        session = Session("", resume=False)
        for script, part in self.actor.parts(scene).items():
            if part.opens:
                session = Session(
                    self._run(script, scene, Session("", resume=False)).session_id or "", resume=True
                )
            elif session.session_id or not part.goes_on:
                self._record(script, scene, session)

    def _record(self, script: str, scene: Scene, session: Session) -> None:
        before = {path: path.stat().st_size for path in self._remembered(session)}
        done = self._run(script, scene, session)
        self.actor.api.wait_until_idle(script)
        records = [
            line
            for path in self._remembered(Session(done.session_id or session.session_id, resume=True))
            for line in path.read_bytes()[before.get(path, 0) :].decode(errors="replace").splitlines()
        ]
        self._write(script, done, records)

    def _run(self, script: str, scene: Scene, session: Session) -> Process:
        """Run the agent once, in the scene's workspace."""
        adapter = _adapter(self.version.agent)
        workspace, spool = self.root / scene, self.root / f"spool-{script}"
        furnish(workspace, self.actor, scene)
        (workspace / "under-way").unlink(missing_ok=True)
        spool.mkdir()
        if not session.session_id and not adapter.capabilities.names_sessions:
            session = Session(str(uuid4()), resume=False)
        fields = {"output_schema": SCHEMA} if scene is Scene.SCHEMA else {}
        request = TurnRequest.parse(
            {
                "prompt": f"do it [script:{script}]",
                "workspace": str(workspace),
                "options": {**self.actor.options, **self.actor.parts(scene)[script].options},
                **fields,
            }
        )
        command = adapter.build(request, session)
        process = self._start(command, spool, script)
        try:
            if scene in _ENDED_BY and not self.actor.parts(scene)[script].opens:
                until(
                    lambda: (workspace / "under-way").exists() or process.poll() is not None, "its tool", _LONG_S
                )
                process.send_signal(_ENDED_BY[scene])
            process.wait(_LONG_S)
        finally:
            for left in of_turn(spool):
                with suppress(psutil.NoSuchProcess):
                    left.kill()
        out, err = ((spool / name).read_text(errors="replace") for name in ("events", "err"))
        return Process(process.wait(), out, err, session.session_id or told(adapter.parser(), out))

    def _start(self, command: Command, spool: Path, script: str) -> subprocess.Popen[bytes]:
        for name, data in command.files.items():
            (spool / name).write_bytes(data)
        (spool / "prompt").write_bytes(command.stdin)
        arguments = [word.replace(FILES, str(spool)) for word in command.argv[1:]]
        environment = {**self.actor.environment, **command.env, "RUNTURN_SPOOL": str(spool)}
        environment[self.actor.credential] = key(script)
        with (
            (spool / "prompt").open() as stdin,
            (spool / "events").open("wb") as out,
            (spool / "err").open("wb") as err,
        ):
            return subprocess.Popen(
                [*self.program, *arguments],
                cwd=command.cwd,
                env=environment,
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _remembered(self, session: Session) -> Iterator[Path]:
        """The session's files that its adapter reads."""
        request = TurnRequest.parse({"prompt": "x", "workspace": "/"})
        files = _adapter(self.version.agent).build(request, session).session_files
        if files is None or not session.session_id:
            return
        home = self.actor.environment["HOME"]
        root = Path(self.actor.environment.get(files.root_env) or Path(home, files.root_default))
        for pattern in files.patterns:
            yield from sorted(root.glob(pattern))

    def _write(self, script: str, done: Process, records: Iterable[str]) -> None:
        folder = DATA / self.version.agent / "versions" / self.version.number
        folder.mkdir(parents=True, exist_ok=True)
        bill = self.actor.api.bills().get(script)
        used = bill.by_model if bill else {}
        truth = {
            "exit_code": done.code,
            "stderr": done.stderr[-_TAIL:],
            "requests": len(bill.requests) if bill else 0,
            "billed": {
                model: [tokens.input, tokens.output, tokens.cache_read, tokens.cache_creation]
                for model, tokens in sorted(used.items())
            },
        }
        texts = {
            "jsonl": lines_of(map(small, done.stdout.splitlines())),
            "session.jsonl": lines_of(remembered(self.version.agent, line) for line in records),
            "truth.json": json.dumps(truth, indent=1) + "\n",
        }
        for suffix, text in texts.items():
            path = folder / f"{script}.{suffix}"
            path.write_text(self._scrubbed(text)) if text else path.unlink(missing_ok=True)

    def _scrubbed(self, text: str) -> str:
        """Without what tells of this machine."""
        checkout = str(ROOT)
        slug = "".join(letter if letter.isalnum() else "-" for letter in str(self.root))
        for place, other in (
            (str(self.root), "/home/runturn"),
            (slug, "-home-runturn"),
            (checkout, "/opt/runturn"),
            (self.actor.api.base_url, "http://127.0.0.1:1"),
        ):
            text = text.replace(place, other)
        return text


def record(version: Version, scenes: Sequence[Scene]) -> None:
    """Write these recordings of the version anew."""
    with tempfile.TemporaryDirectory(prefix="rt-record-", ignore_cleanup_errors=True) as place:
        root = Path(place)
        home = root / "home"
        home.mkdir()
        with ACTORS[version.agent](home) as actor:
            studio = Studio(version, installed(version), actor, root)
            for scene in scenes:
                if scene is not Scene.SCHEMA or _adapter(version.agent).capabilities.structured_output:
                    studio.record(scene)


def _adapter(agent: str) -> Adapter:
    entry = next(entry for entry in BUILT_IN if entry.name == agent)
    adapter: Adapter = entry.load()(AgentConfig())
    return adapter


if __name__ == "__main__":
    for chosen in versions(*sys.argv[1:3]):
        print(chosen, flush=True)
        record(chosen, [Scene(name) for name in sys.argv[3:]] or SCENES)
