"""What every version has to go through, and what its API says in each scene. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tests.fakes.model_api import Fault, Hold, HttpError, Reply, Text, ToolUse, Usage
from tests.fakes.model_api.script import Answer
from tests.integration.contract.scenes import ANSWER, TOOLS
from tests.integration.contract.scenes import Scene as Contract


class Scene(StrEnum):
    """One kind of turn."""

    SUCCESS = "success"  # a tool, then an answer
    RESUME = "resume"  # a turn, and another one in its session
    SCHEMA = "schema"  # structured output
    REFUSED = "refused"  # the API answers 400
    UNAUTHORIZED = "unauthorized"  # the API answers 401
    LIMITED = "limited"  # after a paid tool call, the API answers 429 once
    CUT = "cut"  # after a paid tool call, the answer's stream ends in its middle, once
    CANCEL = "cancel"  # in the middle of a tool that no gentle signal ends
    KILL_AGENT = "kill-agent"  # SIGKILL in the middle of an answer
    KILL_WORKER = "kill-worker"  # kill -9 in the middle of a tool; the next worker takes over
    BESIDE = "beside"  # the agent asks a model for more than the conversation
    KILL_BESIDE = "kill-beside"  # SIGKILL in the middle of a tool, when that was answered


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
OUTPUT = {"n": 3}
_OFTEN = 6  # more than a turn has attempts
_LAST = Reply((Text(ANSWER),), Usage(50, 30, 4500, 260))


@dataclass(frozen=True, slots=True)
class Speech:
    """How the model of an agent says it."""

    shell: Callable[[str], ToolUse]  # a call of the agent's shell
    output: Reply  # the last answer of a turn that has to fill in `SCHEMA`
    refused: HttpError
    unauthorized: HttpError
    limited: HttpError
    cut_after: int  # events of an answer, when it has begun and is not done
    caches: bool = True  # False: its API bills no writing to the cache
    beside: tuple[ToolUse, ...] = ()  # calls of tools that ask a model themselves
    beside_killed: tuple[ToolUse, ...] = ()  # the same, in a turn that is killed after them


def replies(scene: Scene, speech: Speech) -> tuple[Answer, ...]:
    """All that the model says in a scene; a turn that is tried again finds an answer, too."""
    tool, noted = _tool(speech, "echo one"), _tool(speech, "echo one | tee note")
    cut = Reply((Text("a long answer " * 9),), Usage(300, 50, 50, 6), fault=Fault("cut", speech.cut_after))
    held = Reply((Text("cut off"), Text("here")), Usage(300, 50, 50, 6), hold=Hold(scene, 1))
    last = (_LAST,) * _OFTEN
    said: dict[Scene, tuple[Answer, ...]] = {
        Scene.SUCCESS: (tool, _LAST) * _OFTEN,
        Scene.RESUME: (tool, _LAST) * _OFTEN,
        Scene.SCHEMA: (tool, speech.output, *last),
        Scene.REFUSED: (speech.refused,) * 4 * _OFTEN,
        Scene.UNAUTHORIZED: (speech.unauthorized,) * 4 * _OFTEN,
        Scene.LIMITED: (tool, speech.limited, *last),
        Scene.CUT: (tool, cut, *last),
        Scene.CANCEL: (_tool(speech, TOOLS[Contract.CANCEL]), *last),
        Scene.KILL_AGENT: (tool, held, *last),
        Scene.KILL_WORKER: (_tool(speech, TOOLS[Contract.KILL]), *last),
        Scene.BESIDE: (noted, *map(_asking, speech.beside), _LAST) * _OFTEN,
        Scene.KILL_BESIDE: (tool, *map(_asking, speech.beside_killed), _tool(speech, TOOLS[Contract.KILL]), *last),
    }
    return tuple(_billed(answer, speech) for answer in said[scene])


def first_replies(speech: Speech) -> tuple[Answer, ...]:
    """What the model says in the turn before the one that resumes it."""
    return tuple(_billed(answer, speech) for answer in (Reply((Text("first"),), Usage(11, 12, 13, 14)),) * _OFTEN)


def _tool(speech: Speech, command: str) -> Reply:
    return Reply((speech.shell(command),), Usage(1000, 200, 3000, 500))


def _asking(call: ToolUse) -> Reply:
    return Reply((call,), Usage(300, 50, 50, 6))


def _billed(answer: Answer, speech: Speech) -> Answer:
    if speech.caches or not isinstance(answer, Reply):
        return answer
    used = answer.usage
    return Reply(
        answer.blocks, Usage(used.input, used.output, used.cache_read), hold=answer.hold, fault=answer.fault
    )
