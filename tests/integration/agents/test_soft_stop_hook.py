"""The hook by which Claude Code learns that it is to end, as shells run it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from adapters.claude_code.soft_stop import SETTINGS


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_hook_prints_the_word_only_where_there_is_one(tmp_path: Path, shell: str) -> None:
    (hook,) = json.loads(SETTINGS)["hooks"]["PreToolUse"][0]["hooks"]

    def look() -> tuple[int, bytes, bytes]:
        ran = subprocess.run(
            [shell, "-c", hook["command"]], env={"RUNTURN_SPOOL": str(tmp_path)}, capture_output=True, check=False
        )
        return ran.returncode, ran.stdout, ran.stderr

    assert look() == (0, b"", b"")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/stop").write_bytes(b'{"a":"b\\\\n"}\n')
    assert look() == (0, b'{"a":"b\\\\n"}\n', b"")
