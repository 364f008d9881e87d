"""What became of one scene with one version, and whether that is right. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from adapters.errors import AgentVersionUnsupported
from tests.tools.agents.scenes import Scene

Tokens = Mapping[str, int]  # by model

_SUCCESSES = frozenset(
    {Scene.SUCCESS, Scene.RESUME, Scene.SCHEMA, Scene.KILL_WORKER, Scene.BESIDE}
)  # and each of one attempt
_UNKNOWN = r"(?i)unknown (option|argument)"  # what command lines say of a flag that they do not know
_UNNAMED = "unknown"  # the model in the books where the agent has not told which it was
_REFUSALS = frozenset({Scene.REFUSED, Scene.UNAUTHORIZED})  # which no trying again can mend
_STATUS = {Scene.REFUSED: "failed", Scene.UNAUTHORIZED: "failed", Scene.CANCEL: "cancelled"}


def broken(agent: str, version: str, scene: Scene, trouble: str) -> Cell:
    """Return the cell of a scene that could not be played to its end."""
    return Cell(agent, version, scene, "", None, "", 0, 0, {}, {}, False, False, trouble=trouble)


@dataclass(frozen=True, slots=True)
class Cell:
    """One scene with one version: how it ended, what was billed and what was booked."""

    agent: str
    version: str
    scene: Scene
    status: str
    kind: str | None  # of the error
    message: str
    attempts: int
    requests: int  # that its API got
    billed: Tokens
    booked: Tokens
    complete: bool  # what the result says of its books
    kinds_agree: bool  # also of input, output and the cache, each by itself
    left: tuple[str, ...] = ()  # processes and spools
    turns_wrong: tuple[str, ...] = ()  # the books of each turn, where there are several
    trouble: str = ""  # why the scene was not played to its end

    @property
    def refused(self) -> bool:
        """Whether a worker refused this version, before an attempt and a bill."""
        return self.kind == AgentVersionUnsupported.kind and self.attempts == 0 and not self.billed

    @property
    def unable(self) -> bool:
        """Whether this version lacks what the scene needs, which was found before anything was billed."""
        refused = self.attempts == 0 or re.search(_UNKNOWN, self.message) is not None
        return self.status == "failed" and not self.billed and refused

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it; nothing: it holds."""
        if self.trouble:
            return (self.trouble,)
        booked_wrong = wrong_books(self.booked, self.billed, complete=self.complete)
        left = (f"left: {what}" for what in self.left)
        return (*self._ended_wrong(), *booked_wrong, *self.turns_wrong, *left)

    def _ended_wrong(self) -> list[str]:
        if self.unable:
            return []
        wrong = []
        wanted = _STATUS.get(self.scene, "completed")
        if self.status != wanted:
            wrong.append(f"{self.status} instead of {wanted}: {self.kind}, {self.message}")
        if self.scene in _SUCCESSES and self.attempts != 1:
            wrong.append(f"paid {self.attempts} times")
        if self.scene in _REFUSALS and self.attempts > 1:
            wrong.append(f"refused {self.attempts} times")
        return wrong


def wrong_books(booked: Tokens, billed: Tokens, *, complete: bool) -> list[str]:
    """Return what is wrong with books that call themselves complete, or not."""
    if set(booked) == {_UNNAMED} and not complete:
        return ["booked more than was billed"] if sum(booked.values()) > sum(billed.values()) else []
    over = sorted(model for model in booked if booked[model] > billed.get(model, 0))
    wrong = [f"booked more than was billed of {model}" for model in over]
    if complete and booked != billed and not over:
        wrong.append("booked less than was billed, and called complete")
    return wrong
