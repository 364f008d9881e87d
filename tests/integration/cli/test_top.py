"""`runturn top`: what it shows of a ledger that is known, and how it leaves the terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from adapters import events as ev
from adapters.usage import Tokens, Usage, UsageSource
from ops.ledger import BudgetKey, Claim, Ledger, Period, Spending
from ops.settings.state_dir import StateDir
from tests.integration.cli.conftest import Cli
from tests.support.claiming import claim_turn
from tests.support.ledger.accounts import a_request, a_result, a_usage, an_end, begun, claimed, completed
from tests.support.places import ROOT
from tests.support.waiting import until
from workers.cli.top import _drawn, _fitted
from workers.cli.top_data import HostLine, Survey
from workers.events.model import AnyEvent, AttemptStarted, to_wire

HOUR_S = 3600.0
NOON = 1_800_014_400.0  # of a day in UTC
RUNTURN = (sys.executable, "-m", "workers.__main__")
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"  # the screen of full-screen programs, and the one before


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Where the commands of `cli` look."""
    with Ledger.open(StateDir.open(tmp_path / "state").ledger_url) as ledger:
        yield ledger


def fill(ledger: Ledger, now: float) -> None:
    """One turn runs and has done something, one lost its worker, one is ready, two are parked, five have ended."""
    ledger.hosts.announce({"build1": {}, "build2": {}}, now - 20)
    ledger.budgets.put(BudgetKey("team", "web", Period.DAY), 5.0, 1.0, now - HOUR_S)
    ledger.queue.submit_many([a_request("runs", producer="issue-bot", labels={"team": "web"})], now - 100)
    runs = claim_turn(ledger, "runs", "worker", now - 90, HOUR_S)
    assert isinstance(runs, Claim)
    begun(ledger, runs, "s-runs", now - 90, host="build1")
    happened: tuple[AnyEvent, ...] = (
        AttemptStarted(1, "claude-code", "build1"),
        ev.SessionStarted("session-1", model="claude-sonnet-4-5"),
        ev.TokenUsage("claude-sonnet-4-5", Tokens(1000, 10, 0, 0)),
        ev.ToolStarted("tool-1", "Bash", "make \x1b[31mtest"),
    )
    ledger.events.append(runs, 1, [to_wire(event, seq, now - 70) for seq, event in enumerate(happened, 1)])
    begun(
        ledger, claimed(ledger, "lost", now=now - 600), "s-lost", now - 600, host="build2", session_id="session-2"
    )
    ledger.queue.submit_many([a_request("ready")], now - 50)
    for turn_id in ("parked-1", "parked-2"):
        ledger.queue.wait(claimed(ledger, turn_id, now=now - 40), now + HOUR_S, "rate_limited", now - 40)
    estimate = Usage(a_usage(9.0).by_model, UsageSource.STREAM, complete=False)
    completed(ledger, "ended-1", a_usage(0.25), now - 60)
    completed(ledger, "ended-2", a_usage(None), now - 60)
    completed(ledger, "ended-3", estimate, now - 60)
    completed(ledger, "ended-4", a_usage(0.5), now - 2 * HOUR_S)
    claim = claimed(ledger, "ended-5", now=now - 60)
    begun(ledger, claim, "s-ended-5", now - 60, host="build1")
    nothing = Usage({}, UsageSource.RESULT)
    end = replace(an_end(used=nothing), cpu_ms=90_000, peak_memory_bytes=300 << 20)
    ledger.queue.settle(claim, a_result("ended-5", used=nothing), now - 50, end)


def price(_: str, __: str, tokens: Tokens) -> float:
    """A dollar for a thousand tokens."""
    return tokens.total / 1000


def test_it_tells_what_runs_what_waits_and_what_was_spent(ledger: Ledger) -> None:
    fill(ledger, NOON)
    seen = Survey(ledger, price, ledger.reports.prompts, {"build1": 2}).look(NOON, 100)
    assert seen.hosts == [
        HostLine("build1", 1, 2, 20.0, cpu_s=90.0, peak_memory_bytes=300 << 20),
        HostLine("build2", 1, None, 20.0, cpu_s=None, peak_memory_bytes=None),
    ]
    lost, runs = seen.turns
    assert (lost.turn_id, lost.followed, lost.age_s, lost.idle_s) == ("lost", False, 600.0, None)
    assert (runs.turn_id, runs.host, runs.producer, runs.attempt) == ("runs", "build1", "issue-bot", 1)
    assert (runs.followed, runs.age_s, runs.idle_s) == (True, 90.0, 70.0)
    assert (runs.tokens, runs.cost_usd, runs.exact) == (1010, 1.01, False)
    assert runs.doing == "Bash make \N{REPLACEMENT CHARACTER}[31mtest"
    assert (runs.labels, runs.prompt) == ({"team": "web"}, "Fix the tests")
    assert (seen.running_turns, seen.ready_turns, seen.oldest_wait_s) == (2, 1, 50.0)
    assert seen.parked == {"rate_limited": 2}
    assert seen.last_hour == Spending(tokens=7040, cost_usd=0.25, unpriced_tokens=3520)
    assert seen.today == Spending(tokens=10_560, cost_usd=0.75, unpriced_tokens=3520)
    assert [(budget.value, budget.spent_usd, budget.reserved_usd) for budget in seen.budgets] == [
        ("web", 0.0, 1.0)
    ]


def test_a_cancel_that_was_asked_for_shows_at_once(ledger: Ledger) -> None:
    fill(ledger, NOON)
    ledger.queue.cancel("runs", NOON)
    seen = Survey(ledger, price, ledger.reports.prompts, {}).look(NOON, 100)
    doing = {turn.turn_id: turn.doing for turn in seen.turns}
    assert doing["runs"] == "cancelling"


def test_a_second_look_reads_only_what_is_new(ledger: Ledger) -> None:
    fill(ledger, NOON)
    survey = Survey(ledger, price, ledger.reports.prompts, {})
    survey.look(NOON, 100)
    claim = claim_turn(ledger, "runs", "another", NOON + 2 * HOUR_S, HOUR_S)
    assert isinstance(claim, Claim)
    more = ev.TokenUsage("claude-sonnet-4-5", Tokens(0, 0, 500, 0))
    ledger.events.append(claim, 5, [to_wire(more, 5, NOON + 1)])
    (runs,) = (turn for turn in survey.look(NOON + 3, 100).turns if turn.turn_id == "runs")
    assert (runs.tokens, runs.idle_s) == (1510, 2.0)


def test_more_turns_than_fit_are_counted(ledger: Ledger) -> None:
    for number in range(5):
        begun(ledger, claimed(ledger, f"t{number}", now=NOON + number), f"s{number}", NOON + number, host="build1")
    seen = Survey(ledger, price, ledger.reports.prompts, {}).look(NOON + 60, 3)
    assert ([turn.turn_id for turn in seen.turns], seen.running_turns) == (["t0", "t1", "t2"], 5)


def test_what_the_screen_has_no_room_for_is_counted(ledger: Ledger) -> None:
    for number in range(20):
        begun(ledger, claimed(ledger, f"t{number}", now=NOON + number), f"s{number}", NOON + number, host="build1")
    for period in Period:
        ledger.budgets.put(BudgetKey("team", "web", period), 0.05, 0.01, NOON)
    seen = Survey(ledger, price, ledger.reports.prompts, {}).look(NOON + 60, 24)
    shown = io.StringIO()
    Console(file=shown, width=80, height=24).print(_drawn(_fitted(seen, 24), 80))
    lines = shown.getvalue().splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "… and 9 more"


def test_amounts_of_a_budget_have_the_same_decimals(ledger: Ledger) -> None:
    ledger.budgets.put(BudgetKey("team", "web", Period.DAY), 0.05, 0.01, NOON)
    completed(ledger, "t1", a_usage(0.1054), NOON, labels={"team": "web"})
    shown = io.StringIO()
    Console(file=shown, width=80).print(
        _drawn(Survey(ledger, price, ledger.reports.prompts, {}).look(NOON + 60, 24), 80)
    )
    assert "budget team=web/day: $0.1054 of $0.0500" in shown.getvalue()


def test_once_prints_plain_text_for_pipes(cli: Cli, ledger: Ledger) -> None:
    fill(ledger, time.time())
    said = cli("top", "--once")
    assert (said.status, said.err) == (0, "")
    assert "\x1b" not in said.out
    lines = said.out.splitlines()
    (host,) = (line for line in lines if line.startswith("build1"))
    assert host.split()[-4:] == ["1m", "30s", "300", "MiB"]
    assert "2 running · 1 ready (oldest: 5" in lines[0] and "parked: 2 rate_limited" in lines[0]
    assert lines[1].startswith("last hour $0.2500 (excluding 3,520 unpriced), 7,040 tokens")
    assert "budget team=web/day: $0.00 + $1.00 reserved of $5.00" in lines
    (runs,) = (line for line in lines if line.startswith("runs"))
    assert "issue-bot" in runs and "≥ 1,010" in runs and "Bash make" in runs
    (lost,) = (line for line in lines if line.startswith("lost"))
    assert "no worker follows it" in lost
    assert runs.rstrip().endswith("team=web  Fix the tests") and lost.rstrip().endswith("Fix the tests")


def test_json_is_one_document(cli: Cli, ledger: Ledger) -> None:
    fill(ledger, time.time())
    document = cli("top", "--json").document
    assert document["running_turns"] == 2
    assert [turn["turn_id"] for turn in document["turns"]] == ["lost", "runs"]
    assert document["parked"] == {"rate_limited": 2}


def test_an_empty_ledger_is_no_error(cli: Cli) -> None:
    said = cli("top", "--once")
    assert said.status == 0
    assert "0 running · 0 ready · parked: none · dead letters 0" in said.out


@pytest.mark.parametrize(
    ("key", "status"), [(b"q", 0), (b"\x03", 0), (b"", -signal.SIGTERM)], ids=["q", "ctrl-c", "SIGTERM"]
)
def test_whatever_ends_it_leaves_the_terminal_as_before(
    key: bytes, status: int, ledger: Ledger, tmp_path: Path
) -> None:
    fill(ledger, time.time())
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, b"\x28\x00\x8c\x00\x00\x00\x00\x00")  # 40 lines, 140 columns
    before = termios.tcgetattr(its)
    command = subprocess.Popen(
        ["setsid", "--ctty", *RUNTURN, "top", "--interval", "0.2"],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            "HOME": str(tmp_path),
            "RUNTURN_STATE_DIR": str(tmp_path / "state"),
        },
        cwd=tmp_path,
        stdin=its,
        stdout=its,
        stderr=its,
    )
    shown = bytearray()

    def shows(text: bytes) -> bool:
        with contextlib.suppress(BlockingIOError):
            shown.extend(os.read(ours, 65_536))
        return text in shown

    os.set_blocking(ours, False)
    try:
        until(lambda: shows(b"no worker follows it") or command.poll() is not None, "the picture")
        assert command.poll() is None, shown.decode()
        assert ALTERNATE in shown and BACK not in shown
        assert termios.tcgetattr(its) != before, "keys are taken one by one"
        if key:
            os.write(ours, key)
        else:
            command.terminate()
        until(lambda: shows(BACK), "the screen of before")
        assert command.wait(30) == status
        assert termios.tcgetattr(its) == before
        assert b"Traceback" not in shown
    finally:
        command.kill()
        command.wait()
        os.close(its)
        os.close(ours)
