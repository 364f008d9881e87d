"""Which agent is chosen, who is billed, and how long a prompt may be."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from adapters.billing import billing_modes
from adapters.claude_code.adapter import ClaudeCode
from adapters.contract import AgentConfig, Billing, Capabilities
from adapters.errors import AgentNotFound, InvalidRequest
from adapters.protocol.request import TurnRequest
from adapters.replay_agent import create
from adapters.routing import Candidate, Choice, check_able, choose
from adapters.toolkit.token_estimate import TokenEstimate, estimate_tokens

PLAIN = Capabilities(resume=True, structured_output=False, cost_cap=False, live_output_tokens=False)
RICH = replace(PLAIN, structured_output=True, live=True, plans=True, max_context_tokens=1_000)
POLYGLOT = Candidate("polyglot", "local", PLAIN, Billing.API)
SNAKE = Candidate("snake", "local", replace(RICH, languages=frozenset({"python"})), Billing.SUBSCRIPTION)


def request(agent: str = "auto", **fields: Any) -> TurnRequest:
    return TurnRequest.parse({"prompt": "do it", "workspace": "/w", "agent": agent, **fields})


def chosen(candidates: list[Candidate], **fields: Any) -> str:
    choice = choose(candidates, request(**fields))
    assert isinstance(choice, Choice), choice
    return choice.agent


def test_first_that_meets_the_needs_is_chosen_and_the_choice_says_why() -> None:
    assert chosen([POLYGLOT, SNAKE]) == "polyglot"
    assert chosen([SNAKE, POLYGLOT]) == "snake"
    choice = choose([POLYGLOT, SNAKE], request(needs={"live": True, "language": "python"}))
    assert choice == Choice(
        "snake",
        "offers task_type=code, language=python, live; billed to subscription; no other candidate",
    )


@pytest.mark.parametrize(
    ("fields", "agent"),
    [
        ({"needs": {"language": "cobol"}}, "polyglot"),
        ({"needs": {"structured_output": True}}, "snake"),
        ({"output_schema": {"type": "object"}}, "snake"),
        ({"plan": True}, "snake"),
        ({"needs": {"min_context_tokens": 2_000}}, "polyglot"),
        ({"prompt": "x" * 6_000}, "polyglot"),
        ({"needs": {"billing": ["subscription"]}}, "snake"),
        ({"needs": {"billing": ["subscription", "api"]}}, "snake"),
        ({"needs": {"billing": ["api", "subscription"]}}, "polyglot"),
    ],
)
def test_needs_decide_whatever_the_order(fields: dict[str, Any], agent: str) -> None:
    for order in permutations([POLYGLOT, SNAKE]):
        assert chosen(list(order), **fields) == agent


def test_one_that_is_not_healthy_is_passed_over() -> None:
    ill = replace(POLYGLOT, problem="it is gone")
    assert chosen([ill, SNAKE]) == "snake"
    assert chosen([ill, replace(POLYGLOT, host="b"), SNAKE]) == "polyglot"
    error = choose([ill, replace(SNAKE, problem="no answer")], request())
    assert isinstance(error, AgentNotFound)
    assert error.message.endswith("polyglot on local: it is gone; snake on local: no answer")


def test_host_that_could_not_be_asked_is_tried_if_there_is_no_other() -> None:
    away = replace(POLYGLOT, billing=None, problem="out of reach", reached=False)
    assert chosen([away, SNAKE]) == "snake"
    assert chosen([away, replace(SNAKE, problem="it is gone")], needs={"billing": ["api"]}) == "polyglot"
    choice = choose([away], request())
    assert isinstance(choice, Choice)
    assert choice.reason.endswith("; local could not be reached: out of reach")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"needs": {"task_type": "paint"}}, "needs.task_type: no agent offers task_type=paint; agents: poly"),
        ({"needs": {"cost_cap": True}}, "needs.cost_cap: no agent offers cost_cap;"),
        ({"needs": {"billing": ["free"]}}, "needs.billing: no agent offers billing=free;"),
        (
            {"needs": {"live": True, "language": "cobol"}},
            "needs: no agent offers all of task_type=code, language=cobol, live",
        ),
    ],
)
def test_what_nobody_offers_is_named(fields: dict[str, Any], says: str) -> None:
    error = choose([POLYGLOT, SNAKE], request(**fields))
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith(says)


def test_agent_that_replays_is_chosen_only_for_that() -> None:
    scripted = Candidate("scripted", "local", create(AgentConfig()).capabilities, Billing.FREE)
    assert chosen([scripted, SNAKE]) == "snake"
    assert chosen([scripted, SNAKE], needs={"task_type": "replay"}) == "scripted"


def test_named_agent_is_held_to_the_needs() -> None:
    agent = ClaudeCode()
    check_able(request("claude-code", plan=True, needs={"cost_cap": True, "billing": ["free"]}), agent)
    with pytest.raises(InvalidRequest, match=r"needs\.live: agent claude-code does not offer live"):
        check_able(request("claude-code", needs={"live": True}), agent)


@pytest.mark.parametrize(
    ("prompt", "estimate"),
    [("", (0, 0)), ("a", (1, 1)), ("abc", (1, 1)), ("abcd", (2, 1)), ("x" * 300, (100, 50)), ("日" * 6, (2, 1))],
)
def test_estimate_is_a_third_of_the_characters_and_half_of_that_again(
    prompt: str, estimate: tuple[int, int]
) -> None:
    assert estimate_tokens(prompt) == TokenEstimate(*estimate)
    assert estimate_tokens(prompt).total == sum(estimate)


def test_prompt_beyond_the_context_is_refused() -> None:
    class Small(ClaudeCode):
        capabilities = replace(ClaudeCode.capabilities, max_context_tokens=10)

    check_able(request("claude-code", prompt="x" * 30), Small())
    with pytest.raises(InvalidRequest, match=r"prompt: .* a context of 11 tokens \(the prompt's estimated size\)"):
        check_able(request("claude-code", prompt="x" * 31), Small())


@pytest.mark.parametrize(
    ("setting", "credentials", "modes"),
    [
        (None, ["ANTHROPIC_API_KEY"], ["api", "subscription"]),
        (None, ["CLAUDE_CODE_USE_BEDROCK"], ["api", "subscription"]),
        (None, ["CLAUDE_CODE_OAUTH_TOKEN"], ["subscription", "api"]),
        (None, [], ["subscription", "api"]),
        (Billing.SUBSCRIPTION, ["ANTHROPIC_API_KEY"], ["subscription", "api"]),
        (Billing.API, [], ["api", "subscription"]),
    ],
)
def test_billing_is_as_set_else_as_the_credentials_tell(
    setting: Billing | None, credentials: list[str], modes: list[str]
) -> None:
    assert list(billing_modes(setting, ClaudeCode.capabilities, credentials)) == modes


def test_agent_that_knows_one_way_of_billing_has_that() -> None:
    assert billing_modes(None, PLAIN, []) == (Billing.API,)
