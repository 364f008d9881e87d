"""What keeps a command or a worker from doing its job. Turns fail with `adapters.errors`, commands with these."""

from __future__ import annotations

from typing import Any, Self

from adapters.protocol.result import TurnResult
from adapters.protocol.session_result import SessionResult


class RunturnError(Exception):
    """Something that a person has to act on; its text says what and how."""


class BrokerUnavailable(RunturnError):
    """The broker does not answer."""


class NoWorker(RunturnError):
    """No worker is there to run turns."""


class ResultTimeout(RunturnError):
    """The turn has not ended yet."""


class ControlRefused(RunturnError):
    """The turn does not take what is asked of it; as it is, and as it stands, it never will."""


class ControlFailed(RunturnError):
    """The agent was asked, and could not do it."""


class ControlTimeout(RunturnError):
    """Whether the agent has done it is not known."""


class TurnFailed(Exception):  # what producers see of a failed turn
    """How a failed turn, or session of turns, ended; raised by its task, and by who asks Celery for its result.

    A producer that has nothing of runturn installed finds the same three arguments in Celery's stand-in for it.
    Monitors of errors show its text, and its attribute `message` in the place of that if it has one: only the
    arguments have the message, which may be an agent's words.
    """

    def __init__(self, kind: str, message: str, result: dict[str, Any]) -> None:
        """`result` is the whole TurnResult, or SessionResult, as a JSON object."""
        super().__init__(kind, message, result)
        self.kind = kind
        self.result = result

    @classmethod
    def of(cls, result: TurnResult | SessionResult) -> Self:
        """Of a result that has failed."""
        error = result.error
        kind, message = (error.kind, error.message) if error else ("failed", "")
        return cls(kind, message, result.model_dump(mode="json"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r})"

    def __str__(self) -> str:
        return f"{self.kind} ({self.result.get('turn_id') or self.result.get('run_id')})"


class MessageRefused(RunturnError):
    """No turn can be made of a task's message."""


class MessageTooLong(MessageRefused):
    """More than the ledger can keep follows on the task."""


class TurnParked(Exception):  # no error of anybody's
    """Why a turn waits, and when it comes back (ISO 8601): what Celery's RETRY state carries."""


class Undelivered(BaseException):
    """The result backend, or the broker, is away: what Celery was to do for a task is done again later.

    Not an Exception: Celery would take it for the task's own failure, store that, and be done with the task.
    """
