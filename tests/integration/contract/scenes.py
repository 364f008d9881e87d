"""What every agent has to go through on every launcher."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from adapters.isolation import Isolation
from tests.support.fleets.fleet import Fleet


class Scene(StrEnum):
    """One kind of turn."""

    SUCCESS = "success"  # a tool, then an answer
    FAILURE = "failure"  # the model's API refuses
    CANCEL = "cancel"  # in the middle of a tool that no gentle signal ends
    STALL = "stall"  # the model's API falls silent
    KILL = "kill"  # the worker is killed in the middle of a tool
    GARBAGE = "garbage"  # something prints among the agent's lines
    HUGE = "huge"  # a line of a megabyte and more


HUGE_TEXT = "".join(
    f"{n:015}\n" for n in range(90_000)
)  # 1.4 MB that do not repeat themselves: agents look for that
ANSWER = "done"
GARBAGE = 'no JSON at all\n[1, 2\n{"type": 17}\n"text"\n{}\nnull\n'
# Run by the agent's own shell tool, in the workspace of the scene.
TOOLS = {
    Scene.SUCCESS: "echo one",
    Scene.CANCEL: "(setsid sh -c 'trap \"\" TERM INT HUP; sleep 300' &); touch under-way; sleep 300",
    Scene.KILL: "echo started >>starts; touch under-way; until [ -e go-on ]; do sleep 0.1; done",
}

Bill = dict[str, int]  # tokens by model


@dataclass(frozen=True, slots=True)
class Turn:
    """A scene, played by an agent on a host."""

    agent: str
    host: str
    level: Isolation
    scene: Scene
    workspace: Path
    id: str = ""

    @property
    def script(self) -> str:
        """What its agent's API calls it."""
        return f"{self.agent}-{self.host}-{self.level}-{self.scene}"

    def request(self, fleet: Fleet, **fields: Any) -> Any:
        """Its request."""
        limits: dict[str, Any] = {"max_attempts": 1} if self.scene is Scene.STALL else {}
        if self.scene is Scene.STALL:
            limits["stall_timeout_ms"] = 4000
        if self.level is not Isolation.NONE:
            limits["isolation"] = self.level
        return fleet.request(
            **{"agent": self.agent, "host": self.host, "workspace": str(self.workspace), **limits, **fields}
        )


class Actor(Protocol):
    """One agent with all that it needs: its program and the API that it talks to."""

    agent: str

    @property
    def program(self) -> tuple[str, str] | None:
        """The name that its adapter looks up, and the real program; None: it has none of its own."""

    @property
    def environment(self) -> dict[str, str]:
        """What it needs on any host."""

    def fields(self, turn: Turn) -> dict[str, Any]:
        """Of the turn's request: prompt and options."""

    def billed(self, turn: Turn) -> Bill:
        """What the turn cost, as far as it was billed."""

    @property
    def exact(self) -> frozenset[Scene]:
        """Where the books must have all of the bill; elsewhere they may have less, and say so."""

    @property
    def failures(self) -> frozenset[str]:
        """What a refused request may be called."""
