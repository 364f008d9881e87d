"""The real agents that come from npm. `make test-tools` installs them, as `package-lock.json` names them.

The lock file has versions and hashes, and no address to get them from: that is npm's own affair.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.needs import missing
from tests.support.places import ROOT

_TOOLS = ROOT / ".npm-tools"
_LOCK = Path(__file__).with_name("package-lock.json")


def npm_agent(name: str) -> Path:
    """The program `codex` or `gemini`; without it, the test skips on a laptop and fails in CI."""
    program = _TOOLS / "bin" / name
    installed = _TOOLS / "installed"
    if program.exists() and installed.exists() and installed.read_bytes() == _LOCK.read_bytes():
        return program
    return missing(f"{name} is not installed from npm; `make test-tools` does that")
