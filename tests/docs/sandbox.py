"""Where the documents' commands run: a small fleet, a checkout, and `runturn` and `claude` in the PATH.

`claude` is a stand-in that says what the real one has once said, whatever it is asked; producers' programs are run
with the real one (`test_producers`).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.forge import forge
from tests.docs.pages import ROOT, Block
from tests.support.fleets.fleet import Fleet
from tests.support.places import RECORDINGS
from tests.support.waiting import until

RECORDING = RECORDINGS / "a_parallel_tools.jsonl"
_CLAUDE = f"""#!/bin/sh
case $1 in --version) echo '2.1.330 (Claude Code)'; exit ;; esac
cat >/dev/null
cat {shlex.quote(str(RECORDING))}
"""
_LIMIT_S = 60


class Sandbox:
    """Use `sandbox`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        done = fleet.run(fleet.request(turn_id="issue-4711"))
        self._names = {"ID": done.turn_id, "SESSION": done.session_id or "", "FILE": str(RECORDING)}

    def run(self, block: Block) -> subprocess.CompletedProcess[str]:
        """Run a block as one script that ends with the first command that fails."""
        return subprocess.run(
            ["sh", "-eux", "-c", self._script(block.text)],
            stdin=subprocess.DEVNULL,
            env=self._fleet.environment,
            cwd=self._fleet.workspace,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )

    def _script(self, text: str) -> str:
        """The commands with what readers are to put in place of the words in capitals."""
        text = text.replace("/srv/checkout", shlex.quote(str(self._fleet.workspace))).replace(".venv/bin/", "")
        return re.sub(r"(?<![\w$./])(?:ID|SESSION|FILE)\b", lambda word: shlex.quote(self._names[word[0]]), text)


@contextmanager
def sandbox(root: Path) -> Iterator[Sandbox]:
    """A fleet with a worker and one turn that has ended, whose id is issue-4711."""
    with forge() as programs:
        for name, text in {
            "claude": _CLAUDE,
            "python": f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n',
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(root),
            "PYTHONPATH": str(ROOT),
            "ANTHROPIC_API_KEY": "none",
            "IS_SANDBOX": "1",  # else doctor says that Claude Code refuses to run as root
        }
        archive = root / "transcripts"
        with Fleet(root, environment, transcripts_url=str(archive)) as fleet:
            (fleet.workspace / "Makefile").write_text("test:\n\t@true\n")  # what documents call the tests
            fleet.start_worker()
            box = Sandbox(fleet)
            until(lambda: any(path.is_file() for path in archive.rglob("[!.]*")), "the turn's transcript")
            yield box
