"""Errors of commands and workers. Turns fail with `adapters.errors` instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from adapters.protocol.result import TurnResult
    from adapters.protocol.session_result import SessionResult


class RunturnError(Exception):
    """Error that a user must act on; its text says what happened and what to do."""


class BrokerUnavailable(RunturnError):
    """The broker does not answer."""


class NoWorker(RunturnError):
    """No worker is running."""


class ResultTimeout(RunturnError):
    """The turn has not finished yet."""


class ControlRefused(RunturnError):
    """The turn does not accept this request in its current state."""


class ControlFailed(RunturnError):
    """The agent received the request but could not carry it out."""


class ControlTimeout(RunturnError):
    """It is unknown whether the agent carried out the request."""


class TurnFailed(Exception):  # what producers see of a failed turn
    """Failure of a turn or session of turns, raised by its task and by Celery when its result is requested.

    A producer without runturn installed finds the same three arguments in Celery's substitute for it. Error
    monitors show its text, or an attribute `message` if there is one: so only the arguments contain the message,
    which may quote the agent.
    """

    def __init__(self, kind: str, message: str, result: dict[str, Any]) -> None:
        """`result` is the whole TurnResult or SessionResult as a JSON object."""
        super().__init__(kind, message, result)
        self.kind = kind
        self.result = result

    @classmethod
    def of(cls, result: TurnResult | SessionResult) -> Self:
        """Create the error for a failed result."""
        error = result.error
        kind, message = (error.kind, error.message) if error else ("failed", "")
        return cls(kind, message, result.model_dump(mode="json"))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r})"

    def __str__(self) -> str:
        return f"{self.kind} ({self.result.get('turn_id') or self.result.get('run_id')})"


class MessageRefused(RunturnError):
    """A task's message does not describe a turn."""


class MessageTooLong(MessageRefused):
    """The task's callbacks exceed what the ledger can keep."""


class TurnParked(Exception):  # not an error
    """Reason why a turn waits, and when it resumes (ISO 8601), as carried by Celery's RETRY state."""


class Undelivered(BaseException):
    """The result backend or the broker is unavailable: Celery's part of a task is repeated later.

    Not an Exception: Celery would take that for the task's own failure, store it, and finish the task.
    """
