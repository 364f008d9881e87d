"""Errors of a turn. Each kind defines whether and when it is retried.

    TurnError
    ├── RequestError                   the producer must change the request
    │   ├── InvalidRequest             invalid_request
    │   ├── InvalidWorkspace           invalid_workspace_cwd
    │   ├── SessionNotFound            session_not_found
    │   └── SessionInUse               session_in_use         (waits, is not an attempt)
    ├── HostError                      the machine the turn runs on
    │   ├── HostBusy                   host_busy              (waits, is not an attempt)
    │   ├── AgentNotFound              agent_not_found
    │   ├── AgentVersionUnsupported    agent_version_unsupported
    │   ├── HostUnreachable            host_unreachable       (retried)
    │   ├── HostKeyChanged             host_key_changed
    │   ├── HostAuthFailed             host_auth_failed
    │   ├── IsolationUnavailable       isolation_unavailable
    │   ├── SpoolUnwritable            spool_unwritable
    │   └── HostLost                   host_lost              (retried)
    ├── ApiError                       the model's API
    │   ├── AuthenticationFailed       authentication_failed
    │   ├── RateLimited                rate_limited           (retried, after the reset)
    │   ├── OutOfTokens                out_of_tokens          (retried if a reset time is known)
    │   ├── Overloaded                 overloaded             (retried)
    │   └── ApiUnreachable             api_unreachable        (retried)
    ├── LimitReached                   a limit that the request or the operator set
    │   ├── TurnTimeout                turn_timeout
    │   ├── TurnStalled                turn_stalled           (retried)
    │   ├── MemoryExceeded             memory_exceeded
    │   ├── ProcessesExceeded          processes_exceeded
    │   ├── DiskExceeded               disk_exceeded
    │   ├── ReadTimeout                read_timeout           (retried)
    │   ├── DeadlineExceeded           deadline_exceeded
    │   ├── TurnExpired                turn_expired
    │   └── BudgetExceeded             budget_exceeded
    ├── RunturnError                   runturn itself
    │   └── InternalError              internal_error
    └── AgentError                     the agent itself
        ├── AgentFailed                turn_failed
        ├── AgentNotUnderstood         agent_not_understood
        ├── TurnCancelled              turn_cancelled
        ├── PortExit                   port_exit              (retried once the agent had started)
        └── StructuredOutputMissing    structured_output_missing

A retry after a paid attempt counts against `max_paid_retries`, unless the failure's cause is external; each kind
defines that, too (`Paid`).

To add a kind: add a class here (its docstring is its default message) and a line to the tree above, and return it
where the error is detected: `workers.limits` and `workers.hosts.errors` map limits and faults of hosts, tables in
the `judge` modules and in `adapters.toolkit.error_mapping` what agents report. `make docs` adds its line to the
documents. If it is retried, add it to the list in `test_errors`.
"""

from __future__ import annotations

from copy import copy
from enum import Enum
from typing import ClassVar, Self


class Retry(Enum):
    """How a turn continues after an error."""

    NEVER = "never"  # another attempt cannot succeed
    BACKOFF = "backoff"  # another attempt, after a delay
    WAIT = "wait"  # does not count as an attempt: the turn is parked and delivered again


class Paid(Enum):
    """When a failed attempt counts as paid. See `max_paid_retries`."""

    IF_BILLED = "if billed"  # tokens are booked for it, or may have been billed unseen
    IF_BOOKED = "if booked"  # only if tokens are booked: an attempt that reached no API looks incomplete, too
    NEVER = "never"  # external causes: an API refusal, a lost agent, an agent killed from outside


class TurnError(Exception):
    """The turn failed."""

    kind: ClassVar[str] = ""
    default_retry: ClassVar[Retry] = Retry.NEVER
    paid: ClassVar[Paid] = Paid.IF_BILLED

    def __init__(
        self,
        message: str | None = None,
        *,
        retry: Retry | None = None,
        retry_at: float | None = None,
    ) -> None:
        self.message = message or (self.__doc__ or self.kind).strip()
        self.retry = retry or self.default_retry
        self.retry_at = retry_at  # Unix time in seconds before which another attempt is pointless
        super().__init__(self.message)

    @property
    def retryable(self) -> bool:
        """Return True if the turn may be retried."""
        return self.retry is not Retry.NEVER

    def with_retry(self, retry: Retry, message: str = "") -> Self:
        """Return a copy that is retried in another way, at any time, and perhaps says more."""
        other = copy(self)
        other.message = message or self.message
        other.args = (other.message,)
        other.retry, other.retry_at = retry, None
        return other


class RequestError(TurnError):
    """The request cannot run as written."""

    paid = Paid.NEVER


class InvalidRequest(RequestError):
    """The request is invalid."""

    kind = "invalid_request"

    def __init__(self, message: str | None = None, *, field: str | None = None) -> None:
        self.field = field
        super().__init__(f"{field}: {message}" if field and message else message)


class InvalidWorkspace(RequestError):
    """The workspace is not an existing directory on the host."""

    kind = "invalid_workspace_cwd"


class SessionNotFound(RequestError):
    """The agent session to resume does not exist in that workspace on that host."""

    kind = "session_not_found"


class SessionInUse(RequestError):
    """Another turn is running in this agent session."""

    kind = "session_in_use"
    default_retry = Retry.WAIT


class HostError(TurnError):
    """The host could not run the turn."""

    paid = Paid.NEVER


class HostBusy(HostError):
    """All slots of the hosts that may run the turn are taken."""

    kind = "host_busy"
    default_retry = Retry.WAIT

    def __init__(self, message: str | None = None, *, only: str | None = None, others_free: bool = False) -> None:
        self.only = only  # the only host that can run the turn
        self.others_free = others_free  # hosts that cannot run the turn have free slots
        super().__init__(message)


class AgentNotFound(HostError):
    """The agent's program was not found on the host, or is not executable."""

    kind = "agent_not_found"


class AgentVersionUnsupported(HostError):
    """The agent's version on the host is known not to work."""

    kind = "agent_version_unsupported"


class HostUnreachable(HostError):
    """The host could not be reached."""

    kind = "host_unreachable"
    default_retry = Retry.BACKOFF
    # Such an attempt never started and cost nothing, or its agent finished and its host could not report the rest.
    paid = Paid.IF_BILLED


class HostKeyChanged(HostError):
    """The host's key differs from the recorded one."""

    kind = "host_key_changed"


class HostAuthFailed(HostError):
    """The host refused the login."""

    kind = "host_auth_failed"


class IsolationUnavailable(HostError):
    """The host cannot isolate agents as the operator or the request demands."""

    kind = "isolation_unavailable"


class SpoolUnwritable(HostError):
    """The spool on the host cannot be written; its disk may be full."""

    kind = "spool_unwritable"


class HostLost(HostError):
    """The agent was lost with its host or its supervisor, or because its lease expired."""

    kind = "host_lost"
    default_retry = Retry.BACKOFF


class ApiError(TurnError):
    """The model's API did not answer the agent."""

    paid = Paid.NEVER


class AuthenticationFailed(ApiError):
    """The model's API refused the agent's credentials."""

    kind = "authentication_failed"


class RateLimited(ApiError):
    """The model's API is rate limiting this account."""

    kind = "rate_limited"
    default_retry = Retry.BACKOFF


class OutOfTokens(ApiError):
    """The account's balance or quota is exhausted."""

    kind = "out_of_tokens"


class Overloaded(ApiError):
    """The model's API is overloaded."""

    kind = "overloaded"
    default_retry = Retry.BACKOFF


class ApiUnreachable(ApiError):
    """The model's API could not be reached, failed, or cut its answer short."""

    kind = "api_unreachable"
    default_retry = Retry.BACKOFF
    paid = Paid.IF_BOOKED


class LimitReached(TurnError):
    """A limit ended the turn."""


class TurnTimeout(LimitReached):
    """The turn took longer than turn_timeout_ms."""

    kind = "turn_timeout"


class TurnStalled(LimitReached):
    """The agent was silent for longer than stall_timeout_ms."""

    kind = "turn_stalled"
    default_retry = Retry.BACKOFF


class MemoryExceeded(LimitReached):
    """The agent and its tools took more memory than max_memory."""

    kind = "memory_exceeded"


class ProcessesExceeded(LimitReached):
    """The agent and its tools had more processes than max_processes."""

    kind = "processes_exceeded"


class DiskExceeded(LimitReached):
    """The files in the workspace took more space than max_disk."""

    kind = "disk_exceeded"


class ReadTimeout(LimitReached):
    """The agent printed nothing within read_timeout_ms of its start."""

    kind = "read_timeout"
    default_retry = Retry.BACKOFF


class DeadlineExceeded(LimitReached):
    """The turn's deadline has passed."""

    kind = "deadline_exceeded"


class TurnExpired(LimitReached):
    """The task expired before the turn could start."""

    kind = "turn_expired"
    paid = Paid.NEVER


class BudgetExceeded(LimitReached):
    """The turn reached its token or cost limit, or a budget has too little left for it."""

    kind = "budget_exceeded"


class RunturnError(TurnError):
    """runturn failed."""

    paid = Paid.NEVER


class InternalError(RunturnError):
    """A fault of runturn's own kept the turn from being run."""

    kind = "internal_error"


class AgentError(TurnError):
    """The agent failed."""


class AgentFailed(AgentError):
    """The agent reported a failure."""

    kind = "turn_failed"


class AgentNotUnderstood(AgentError):
    """The agent may have succeeded, but its report is not in a recognized form; the turn is not retried."""

    kind = "agent_not_understood"


class TurnCancelled(AgentError):
    """The turn was cancelled, or its agent was terminated by a signal."""

    kind = "turn_cancelled"
    paid = Paid.NEVER


class PortExit(AgentError):
    """The agent's process exited unexpectedly."""

    kind = "port_exit"
    default_retry = Retry.BACKOFF


class StructuredOutputMissing(AgentError):
    """The agent finished without the requested structured output."""

    kind = "structured_output_missing"


def _leaves(error: type[TurnError]) -> list[type[TurnError]]:
    below = [leaf for child in error.__subclasses__() for leaf in _leaves(child)]
    return below or [error]


KINDS: dict[str, type[TurnError]] = {leaf.kind: leaf for leaf in _leaves(TurnError)}


def meaning(kind: str) -> str:
    """Return the default message of an error kind, or "" if this version does not define the kind."""
    return KINDS[kind]().message.rstrip(".") if kind in KINDS else ""
