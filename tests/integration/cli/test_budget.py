"""`runturn budget`: set, listed, removed, and every bad input named."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ops.ledger import Period
from tests.integration.cli.conftest import Cli

WEB = ("project=web", "--per", "day")


def test_budget_is_set_listed_changed_and_removed(cli: Cli) -> None:
    said = cli("budget", "set", "project=web", "50", "--per", "day")
    assert said == (0, "project=web: $50.00 a day, $0.00 spent, $0.00 reserved\n", "")
    cli("budget", "set", "team=a=b", "0.5", "--per", "total")
    cli("budget", "set", *WEB, "60", "--reserve", "2.5")
    assert [list(row.values())[:7] for row in cli("budget", "list", "--json").document] == [
        ["project", "web", "day", 60.0, 2.5, 0.0, 0.0],
        ["team", "a=b", "total", 0.5, 0.5, 0.0, 0.0],
    ]
    assert cli("budget", "remove", *WEB) == (0, "", "")
    assert [row["name"] for row in cli("budget", "list", "--json").document] == ["team"]


def test_list_is_a_table_with_what_is_left_and_until_when(cli: Cli) -> None:
    before = time.time()
    cli("budget", "set", "project=web", "1234.5", "--per", "week")
    said = cli("budget", "list")
    title, row = said.out.splitlines()
    assert title.split() == ["budget", "per", "limit", "spent", "reserved", "left", "resets"]
    assert row.split()[:6] == ["project=web", "week", "$1,234.5000", "$0.0000", "$0.0000", "$1,234.5000"]
    ends = {Period.WEEK.end(before), Period.WEEK.end(time.time())}  # a week may have ended just now
    assert row.split()[6] in {time.strftime("%Y-%m-%d", time.gmtime(end)) for end in ends}


def test_no_budget_is_an_empty_document(cli: Cli) -> None:
    assert cli("budget", "list", "--json").document == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("set", "project", "5", "--per", "day"), ("label", "'project'", "NAME=VALUE")),
        (("set", "=web", "5", "--per", "day"), ("label", "match pattern")),
        (("set", "project=", "5", "--per", "day"), ("label", "match pattern")),
        (("set", "project=web", "five", "--per", "day"), ("USD", "'five'", "not a valid float", "--help")),
        (("set", "project=web", "0", "--per", "day"), ("USD", "greater than or equal to 0.0001")),
        (("set", "project=web", "nan", "--per", "day"), ("USD", "finite")),
        (("set", "project=web", "inf", "--per", "day"), ("USD", "finite")),
        (("set", "project=web", "1e9", "--per", "day"), ("USD", "less than or equal to 10000000")),
        (("set", "project=web", "5", "--per", "day", "--reserve", "0"), ("reserve", "greater than or equal")),
        (("set", "project=web", "5", "--per", "day", "--reserve", "6"), ("reserve", "exceeds the whole budget")),
        (("set", "project=web", "5"), ("--per", "day, week, month, total", "--help")),
        (("set", "project=web", "5", "--per", "year"), ("--per", "'year'")),
        (("set", "project=web", "--per", "day"), ("USD", "--help")),
        (("remove", "project=web", "--per", "day"), ("label", "project=web has no budget per day", "budget list")),
        (("remove", "project", "--per", "day"), ("label", "NAME=VALUE")),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_line_that_names_the_field(
    cli: Cli, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    said = cli("budget", *arguments)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in said.err
    assert cli("budget", "list", "--json").document == []


def test_turn_over_budget_fails_with_what_to_do(fleet_cli: Cli, recording: Path) -> None:
    label = "project=budgeted"
    fleet_cli("budget", "set", label, "0.01", "--per", "total")
    turn = ("run", "x", "-o", f"recording={recording}", "-l", label)
    assert fleet_cli(*turn).status == 0  # it reserved the whole budget, and cost more
    said = fleet_cli(*turn)
    assert said.status == 1
    assert f"budget_exceeded: budget {label} allows $0.0100 in total: $0.0117 spent" in said.out
    assert f"runturn budget set {label} USD --per total" in said.out
    (row,) = fleet_cli("budget", "list", "--json").document
    assert (row["spent_usd"], row["reserved_usd"], row["resets_at"]) == (0.0117, 0.0, None)


@pytest.mark.parametrize("command", ["set", "list", "remove"])
def test_commands_have_help(cli: Cli, command: str) -> None:
    said = cli("budget", command, "--help")
    assert (said.status, said.err) == (0, "")
    assert f"Usage: runturn budget {command}" in said.out
