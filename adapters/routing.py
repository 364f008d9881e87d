"""Routing: checks which agents can run a request, and chooses one if the request names none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from adapters.contract import Adapter, Billing, Capabilities
from adapters.errors import AgentNotFound, AgentVersionUnsupported, InvalidRequest, TurnError
from adapters.protocol.request import AUTO, TurnRequest
from adapters.requirements import Needs
from adapters.toolkit.token_estimate import estimate_tokens


@dataclass(frozen=True, slots=True)
class Candidate:
    """One agent on one host."""

    agent: str
    host: str
    capabilities: Capabilities
    billing: Billing | None = None  # billing mode there; None: unknown
    problem: str | None = None  # why it cannot be used there; None: usable
    refused: bool = False  # because of its version
    reached: bool = True  # False: its host could not be reached just now


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen agent, with the reason in one line."""

    agent: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Requirement:
    """One capability that an agent must offer."""

    words: str
    field: str  # of the request
    met: Callable[[Capabilities], bool]


def check_able(request: TurnRequest, adapter: Adapter) -> None:
    """Raise InvalidRequest, naming the field, if the agent lacks a capability that the request needs.

    Ignores billing, which depends on the host.
    """
    for each in _requirements(request):
        if not each.met(adapter.capabilities):
            raise InvalidRequest(f"agent {adapter.name} does not offer {each.words}", field=each.field)


def choose(candidates: Sequence[Candidate], request: TurnRequest) -> Choice | TurnError:
    """Return the first healthy candidate that meets all needs, by billing preference, then in the given order.

    If none is healthy, choose one whose host could not be reached: its turn tries that host again, as any turn
    does. Otherwise, return the error: the need that no agent meets, or why the agents that meet them are unusable.
    """
    requirements, billing = list(_requirements(request)), request.needs.billing if request.needs else ()
    able = [
        each
        for each in candidates
        if all(requirement.met(each.capabilities) for requirement in requirements)
        and (not billing or each.billing in billing or not each.reached)
    ]
    if not able:
        return _unmet(candidates, requirements, billing)
    usable = [each for each in able if each.problem is None] or [each for each in able if not each.reached]
    if not usable:
        problems = "; ".join(f"{each.agent} on {each.host}: {each.problem}" for each in able)
        error = AgentVersionUnsupported if all(each.refused for each in able) else AgentNotFound
        return error(f"no agent that meets the needs can be used: {problems}")
    best = min(usable, key=lambda each: billing.index(each.billing) if each.billing in billing else len(billing))
    return Choice(best.agent, _reason(best, usable, requirements))


def _requirements(request: TurnRequest) -> Iterator[_Requirement]:
    needs = request.needs or Needs()
    if request.needs is not None or request.agent == AUTO:
        yield _Requirement(
            f"task_type={needs.task_type}", "needs.task_type", lambda can: needs.task_type in can.task_types
        )
    if needs.language is not None:
        wanted = {"*", needs.language}
        yield _Requirement(
            f"language={needs.language}", "needs.language", lambda can: bool(wanted & can.languages)
        )
    if needs.live:
        yield _Requirement("live", "needs.live", lambda can: can.live)
    if needs.resume:
        yield _Requirement("resume", "needs.resume", lambda can: can.resume)
    if request.session_id is not None:
        yield _Requirement("resume", "session_id", lambda can: can.resume)
    if needs.structured_output:
        yield _Requirement("structured_output", "needs.structured_output", lambda can: can.structured_output)
    if request.output_schema is not None:
        yield _Requirement("structured_output", "output_schema", lambda can: can.structured_output)
    if needs.cost_cap:
        yield _Requirement("cost_cap", "needs.cost_cap", lambda can: can.cost_cap)
    if request.plan:
        yield _Requirement("plans", "plan", lambda can: can.plans)
    yield from _context(request, needs)


def _context(request: TurnRequest, needs: Needs) -> Iterator[_Requirement]:
    estimated = estimate_tokens(request.prompt).input
    for tokens, field in ((needs.min_context_tokens or 0, "needs.min_context_tokens"), (estimated, "prompt")):
        if tokens:
            why = " (the prompt's estimated size)" if field == "prompt" else ""
            yield _Requirement(f"a context of {tokens:,} tokens{why}", field, partial(_takes, tokens))


def _takes(tokens: int, can: Capabilities) -> bool:
    return can.max_context_tokens is None or can.max_context_tokens >= tokens


def _reason(best: Candidate, usable: Sequence[Candidate], requirements: Sequence[_Requirement]) -> str:
    others = [agent for agent in dict.fromkeys(each.agent for each in usable) if agent != best.agent]
    met = ", ".join(dict.fromkeys(each.words for each in requirements if each.field != "prompt"))
    parts = [f"offers {met}", f"billed to {best.billing}" if best.billing is not None else ""]
    parts.append(f"other candidates: {', '.join(others)}" if others else "no other candidate")
    if not best.reached:
        parts.append(f"{best.host} could not be reached: {best.problem}")
    return "; ".join(part for part in parts if part)


def _unmet(
    candidates: Sequence[Candidate], requirements: Sequence[_Requirement], billing: Sequence[str]
) -> InvalidRequest:
    every = [(each.words, each.field, [each.met(one.capabilities) for one in candidates]) for each in requirements]
    if billing:
        words = f"billing={','.join(billing)}"
        every.append((words, "needs.billing", [one.billing in billing for one in candidates]))
    by_nobody = [(words, field) for words, field, met in every if not any(met)]
    names = ", ".join(dict.fromkeys(words for words, _ in by_nobody or [(words, "") for words, _, _ in every]))
    field = by_nobody[0][1] if len({field for _, field in by_nobody}) == 1 else "needs"
    agents = ", ".join(dict.fromkeys(each.agent for each in candidates)) or "none"
    together = "" if by_nobody else "all of "
    return InvalidRequest(f"no agent offers {together}{names}; agents: {agents}", field=field)
