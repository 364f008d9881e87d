"""The turns of a scene: most have one, and some go on in the session of another. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.tools.agents.scenes import Scene

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One turn of a scene."""

    options: Options = field(default_factory=dict)  # further ones of its request
    opens: bool = False  # all that it is for is that another one goes on in its session
    goes_on: bool = False


Parts = Mapping[str, Part]  # by the script that their API plays


def one_after_another(script: str, options: Options | None = None) -> Parts:
    """Return a turn that goes on in the session of a first one."""
    options = options or {}
    return {f"{script}-first": Part(options, opens=True), script: Part(options, goes_on=True)}


def parts_of(scene: Scene, own: Mapping[Scene, Parts]) -> Parts:
    """Return the turns of a scene, in their order; an agent may have its own."""
    if scene is Scene.RESUME:
        return one_after_another(scene)
    return own.get(scene) or {scene: Part()}
