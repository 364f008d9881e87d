"""Agents of third parties: what they return and raise is held to the contract, and nothing of a bill is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from adapters.claude_code.adapter import ClaudeCode
from adapters.command import Command
from adapters.contract import AgentConfig, Capabilities, Exit, Health, Judgement, Session
from adapters.errors import AgentFailed, InvalidRequest, TurnError
from adapters.events import AdapterFault, AssistantText, Malformed, TokenUsage
from adapters.live import Control, ControlRequest
from adapters.protocol.request import TurnRequest
from adapters.registry import BUILT_IN, GROUP, discover
from adapters.turn_state import TurnState, fold
from adapters.usage import NO_USAGE, ModelUsage, Tokens, Usage, UsageSource
from adapters.validated_adapter import ValidatedAdapter
from tests.support.recordings.claude_code import load

REQUEST = TurnRequest.parse({"prompt": "x", "workspace": "/w"})
SESSION = Session("s", resume=False)
SPENT = TokenUsage("m", Tokens(output_tokens=7))


def checked(**replaced: Any) -> ValidatedAdapter:
    """Claude Code's adapter as if a third party had written it, with some methods that go wrong."""
    return ValidatedAdapter(type("Odd", (ClaudeCode,), replaced)())


def returning(value: object) -> Callable[..., Any]:
    return lambda *_: value


def raising(error: BaseException) -> Callable[..., Any]:
    def method(*_: object) -> object:
        raise error

    return method


def billed(**fields: Any) -> Usage:
    return Usage({"m": ModelUsage(Tokens(**fields.pop("tokens", {})), **fields)}, UsageSource.RESULT)


@dataclass(frozen=True, slots=True)
class Extended(Health):
    """With a field of the third party's own."""

    colour: str = "red"


def test_agent_that_keeps_to_the_contract_is_as_it_was() -> None:
    agent, plain = checked(), ClaudeCode()
    assert (agent.name, agent.capabilities, agent.tools) == (plain.name, plain.capabilities, plain.tools)
    assert agent.build(REQUEST, SESSION) == plain.build(REQUEST, SESSION)
    lines = load("a_parallel_tools").lines
    state, same = TurnState(), TurnState()
    assert fold(agent.parser(), state, lines) == fold(plain.parser(), same, lines)
    assert agent.judgement(state, Exit(0)) == plain.judgement(same, Exit(0))
    assert agent.credentials({}) == plain.credentials({})
    assert agent.probe() == plain.probe()
    with pytest.raises(InvalidRequest, match=r"options\.nope"):
        agent.check(REQUEST.model_copy(update={"options": {"nope": 1}}))


@pytest.mark.parametrize(
    ("replaced", "call", "says"),
    [
        ({"build": raising(ValueError("sk-secret"))}, "build", "build() raised ValueError"),
        ({"build": raising(SystemExit(2))}, "build", "build() raised SystemExit"),
        ({"build": returning(None)}, "build", "build() is NoneType, not Command"),
        ({"build": returning(Command((), "/w"))}, "build", "build() .argv is empty"),
        ({"build": returning(Command(("a", 5), "/w"))}, "build", "build() .argv[1] is int, not str"),
        ({"build": returning(Command(("a\0b",), "/w"))}, "build", "contains a NUL character"),
        ({"build": returning(Command(("a",), "w"))}, "build", "build() .cwd is not an absolute path"),
        ({"build": returning(Command(("a",), "/"))}, "build", "build().cwd is not the workspace of the request"),
        ({"build": returning(Command(("a",), "/w", stdin="x"))}, "build", "build() .stdin is str, not bytes"),
        ({"build": returning(Command(("a",), "/w", env={"A": 1}))}, "build", "build() .env['A'] is int, not str"),
        ({"build": returning(Command(("a",), "/w", stop=()))}, "build", "build() .stop is empty"),
        ({"check": raising(KeyError("x"))}, "check", "check() raised KeyError"),
        ({"credentials": returning(["A"])}, "credentials", "credentials() is list, not tuple"),
        ({"probe": returning(())}, "probe", "probe() is empty"),
        ({"session_usage": returning({})}, "session_usage", "session_usage() is dict, not Usage"),
    ],
)
def test_fault_names_agent_and_field(replaced: dict[str, Any], call: str, says: str) -> None:
    agent = checked(**replaced)
    calls: dict[str, Callable[[], object]] = {
        "build": lambda: agent.build(REQUEST, SESSION),
        "check": lambda: agent.check(REQUEST),
        "credentials": lambda: agent.credentials({}),
        "probe": agent.probe,
        "session_usage": lambda: agent.session_usage([], TurnState()),
    }
    with pytest.raises(AgentFailed) as raised:
        calls[call]()
    assert raised.value.message.startswith("the adapter of agent claude-code is faulty: ")
    assert says in raised.value.message
    assert "sk-secret" not in raised.value.message
    assert not raised.value.retryable


def test_error_of_an_unknown_kind_becomes_a_known_one() -> None:
    with pytest.raises(AgentFailed, match=r"check\(\) raised an error that is not a defined error kind: Turn"):
        checked(check=raising(TurnError())).check(REQUEST)


@pytest.mark.parametrize(
    ("judged", "says"),
    [
        (raising(RuntimeError()), "judgement() raised RuntimeError"),
        (returning("fine"), "judgement() is str, not Judgement"),
        (returning(Judgement(ValueError())), "judgement() .error is ValueError, not TurnError"),
        (returning(Judgement(TurnError())), "judgement() .error is not a defined error kind"),
        (returning(Judgement(None, billed(tokens={"input_tokens": -1}))), ".input_tokens is below 0"),
        (returning(Judgement(None, billed(cost_usd=float("nan")))), ".cost_usd is not an amount of money"),
        (returning(Judgement(None, billed(tokens={"input_tokens": 1.5}))), ".input_tokens is float, not int"),
    ],
)
def test_judgement_that_makes_no_sense_fails_the_turn_and_keeps_what_was_seen(
    judged: Callable[..., Any], says: str
) -> None:
    state = TurnState()
    state.apply([SPENT])
    verdict = checked(judgement=judged).judgement(state, Exit(0))
    assert isinstance(verdict.error, AgentFailed)
    assert says in verdict.error.message
    assert (verdict.usage.tokens.output_tokens, verdict.read_session_files) == (7, True)


@pytest.mark.parametrize(
    ("following", "says"),
    [
        (raising(RuntimeError()), "next_files() raised RuntimeError"),
        (returning("all"), "next_files() is str, not SessionFiles"),
    ],
)
def test_files_that_it_cannot_choose_are_its_fault(following: Callable[..., Any], says: str) -> None:
    judged = Judgement(None, read_session_files=True, next_files=following)
    verdict = checked(judgement=returning(judged)).judgement(TurnState(), Exit(0))
    assert verdict.next_files is not None
    with pytest.raises(AgentFailed) as raised:
        verdict.next_files(())
    assert says in raised.value.message


@pytest.mark.parametrize(
    ("find", "says"),
    [
        (raising(RuntimeError()), "final_answer() raised RuntimeError"),
        (returning(b"all"), "final_answer() is bytes, not str"),
    ],
)
def test_answer_that_it_cannot_find_is_its_fault(find: Callable[..., Any], says: str) -> None:
    judged = Judgement(None, read_session_files=True, final_answer=find)
    verdict = checked(judgement=returning(judged)).judgement(TurnState(), Exit(0))
    assert verdict.final_answer is not None
    with pytest.raises(AgentFailed) as raised:
        verdict.final_answer(())
    assert says in raised.value.message


class OddParser:
    """Says what it is told to."""

    def __init__(self, events: object) -> None:
        self._events = events

    def feed(self, line: bytes, at: float | None) -> Any:
        """See `Parser.feed`."""
        if isinstance(self._events, BaseException):
            raise self._events
        return self._events if line == b"odd" else (SPENT,)


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([SPENT], "parser().feed() is list, not a tuple of events"),
        (None, "parser().feed() is NoneType, not a tuple of events"),
        (("text",), "parser().feed()[0] is str, not an event"),
        ((SPENT, AssistantText(5)), "parser().feed()[1]: AssistantText .text is int, not str"),  # type: ignore[arg-type]
        ((TokenUsage("m", {}),), "parser().feed()[0]: TokenUsage .added is dict, not Tokens"),  # type: ignore[arg-type]
    ],
)
def test_line_that_the_parser_makes_nonsense_of_fails_the_turn_and_the_others_count(
    events: object, says: str
) -> None:
    agent = checked(parser=lambda _: OddParser(events), judgement=returning(Judgement(None, billed())))
    state = TurnState()
    happened = fold(agent.parser(), state, [b"fine", b"odd", b"fine"])
    assert [type(event) for event in happened] == [TokenUsage, AdapterFault, Malformed, TokenUsage]
    verdict = agent.judgement(state, Exit(0))
    assert verdict.error is not None
    assert says in verdict.error.message
    assert (state.seen_tokens.output_tokens, verdict.usage.complete) == (14, False)


@pytest.mark.parametrize("error", [OSError, SystemExit])
@pytest.mark.parametrize("parser", [raising, lambda error: returning(OddParser(error))])
def test_agent_without_a_parser_that_works_fails_its_turn(
    parser: Callable[[BaseException], Callable[..., Any]], error: type[BaseException]
) -> None:
    agent, state = checked(parser=parser(error())), TurnState()
    fold(agent.parser(), state, [b"x" * 600, b"y"])
    assert state.malformed == 2
    assert f"raised {error.__name__}" in (agent.judgement(state, Exit(0)).error or AgentFailed()).message


def test_what_is_asked_in_passing_is_answered_without_a_fault() -> None:
    agent = checked(price=raising(ZeroDivisionError()), soft_stop=returning("now"), health=returning("well"))
    assert agent.price("m", Tokens()) is None
    assert checked(price=raising(SystemExit())).price("m", Tokens()) is None
    assert checked(soft_stop=raising(SystemExit())).soft_stop("stop") is None
    assert checked(price=returning(float("inf"))).price("m", Tokens()) is None
    assert checked(price=returning(2)).price("m", Tokens()) == 2.0
    assert agent.soft_stop("stop") is None
    health = agent.health(Exit(0), "")
    assert (health.healthy, "health() is str, not Health" in (health.problem or "")) == (False, True)


def test_third_party_may_add_fields_of_its_own() -> None:
    assert checked(health=returning(Extended(True))).health(Exit(0), "") == Extended(True)


@pytest.mark.parametrize("error", [KeyError, SystemExit])
def test_conversation_that_breaks_fails_the_turn(error: type[BaseException]) -> None:
    class Talk:
        async def run(self) -> None:
            raise error("a")

        async def control(self, request: ControlRequest) -> dict[str, Any]:
            raise InvalidRequest("no such model", field="value")

    capable = replace(ClaudeCode.capabilities, live=True)
    agent: Any = checked(capabilities=capable, converse=lambda *_: Talk())
    talk = agent.converse(REQUEST, None, None)
    with pytest.raises(AgentFailed, match=rf"converse\(\)\.run\(\) raised {error.__name__}"):
        asyncio.run(talk.run())
    with pytest.raises(InvalidRequest, match="no such model"):
        asyncio.run(talk.control(ControlRequest(Control.SET_MODEL, "x")))


# What stands for third parties' modules below.
def good(config: AgentConfig) -> ClaudeCode:
    return ClaudeCode(config)


def called_otherwise(_: AgentConfig) -> Any:
    return type("Other", (ClaudeCode,), {"name": "other"})()


def careless(_: AgentConfig) -> Any:
    return type("Careless", (ClaudeCode,), {"capabilities": Capabilities(True, True, True, "yes")})()  # type: ignore[arg-type]


def bare(_: AgentConfig) -> Any:
    return type("Bare", (), {name: getattr(ClaudeCode(), name) for name in ("name", "capabilities", "tools")})()


def mute(_: AgentConfig) -> Any:
    live = replace(ClaudeCode.capabilities, live=True)
    return type("Mute", (ClaudeCode,), {"capabilities": live})()


def leaving(_: AgentConfig) -> Any:
    raise SystemExit(3)


NO_FACTORY = "a string"


@pytest.mark.parametrize(
    ("name", "what", "reason"),
    [
        ("claude-code", "nowhere.at_all:create", "ModuleNotFoundError"),
        ("claude-code", f"{__name__}:nothing", "AttributeError"),
        ("claude-code", f"{__name__}:NO_FACTORY", "is not a factory"),
        ("claude-code", f"{__name__}:leaving", "SystemExit: 3"),
        ("claude-code", f"{__name__}:called_otherwise", "its factory returned an adapter named 'other'"),
        ("claude-code", f"{__name__}:careless", "capabilities .live_output_tokens is str, not bool"),
        ("claude-code", f"{__name__}:bare", "credentials is missing"),
        ("claude-code", f"{__name__}:mute", "converse is missing, though capabilities.live is set"),
        ("auto", f"{__name__}:good", "'auto' is not a valid agent name"),
        ("Claude Code", f"{__name__}:good", "is not a valid agent name"),
    ],
)
def test_entry_that_no_agent_comes_of_is_reported(name: str, what: str, reason: str) -> None:
    registry = discover([EntryPoint(name, what, GROUP)], lambda _: AgentConfig())
    (failed,) = registry.failed
    assert (registry.names, failed.name, failed.options_refused) == ([], name, False)
    assert reason in failed.reason
    with pytest.raises(InvalidRequest, match="could not be loaded"):
        registry.get(name)


def test_report_says_what_is_there_and_what_is_not() -> None:
    third = EntryPoint("claude-code", f"{__name__}:good", GROUP)
    registry = discover([*BUILT_IN, third], lambda _: AgentConfig(), [entry.name for entry in BUILT_IN])
    assert registry.names == sorted(entry.name for entry in BUILT_IN)
    assert [each.name for each in registry] == [entry.name for entry in BUILT_IN]
    assert {"claude-code", "scripted"} <= set(registry.planners)
    (failed,) = registry.failed
    assert "another agent has this name" in failed.reason
    assert isinstance(registry.get("claude-code"), ClaudeCode)  # our own, and not looked through at every line


def test_options_that_its_factory_refuses_are_the_operators_mistake() -> None:
    entry = EntryPoint("claude-code", f"{__name__}:good", GROUP)
    (failed,) = discover([entry], lambda _: AgentConfig(options={"nope": 1})).failed
    assert (failed.options_refused, "options.nope" in failed.reason) == (True, True)


def test_faultless_but_empty_usage_is_none() -> None:
    assert checked(session_usage=returning(NO_USAGE)).session_usage([], TurnState()) == NO_USAGE
