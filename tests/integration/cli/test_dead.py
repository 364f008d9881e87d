"""`runturn dead`: what no worker could read, for people and for programs."""

from __future__ import annotations

import base64

import pytest

from ops.ledger import DeadLetter, DeadLetterRow, Ledger
from ops.settings import load_settings
from ops.settings.state_dir import StateDir
from tests.integration.cli.conftest import Cli

ROW = DeadLetterRow(
    "aa", 1.5, "the body is\nno JSON", "task-1", "runturn", "application/json", "utf-8", {"a": 1}, 2
)


@pytest.fixture
def letters(cli: Cli) -> None:
    """Two messages in the ledger: one of text, one too long to be kept."""
    with Ledger.open(_url()) as ledger:
        ledger.dead_letters.keep(DeadLetter(ROW, b"{\x1b"))
        long = DeadLetterRow("bb", 2.5, "too long", None, "runturn", None, None, {}, 10**9)
        ledger.dead_letters.keep(DeadLetter(long, b"{"))


def _url() -> str:
    return StateDir.open(load_settings().state_dir).ledger_url


@pytest.mark.usefixtures("letters")
def test_list_has_a_line_for_each_and_a_document_for_programs(cli: Cli) -> None:
    said = cli("dead", "list")
    assert said.status == 0
    head, newest, oldest = said.out.splitlines()
    assert head.split() == ["id", "received", "task", "bytes", "reason"]
    assert newest.startswith("bb")
    assert oldest.startswith("aa")
    assert oldest.endswith("2  the body is no JSON")
    document = cli("dead", "list", "--json").document
    assert [row["letter_id"] for row in document] == ["bb", "aa"]
    assert document[1] == {
        "letter_id": "aa",
        "received_at": 1.5,
        "reason": "the body is\nno JSON",
        "task_id": "task-1",
        "queue": "runturn",
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "headers": {"a": 1},
        "body_bytes": 2,
    }
    assert len(cli("dead", "list", "--limit", "1", "--json").document) == 1


@pytest.mark.usefixtures("letters")
def test_show_has_the_body_and_steers_no_terminal(cli: Cli) -> None:
    said = cli("dead", "show", "aa")
    assert said.status == 0
    assert "received_at       1970-01-01 00:00 UTC\n" in said.out
    assert said.out.endswith("\n\n{\N{REPLACEMENT CHARACTER}\n")
    assert "\x1b" not in said.out
    document = cli("dead", "show", "aa", "--json").document
    assert (document["body"], document["body_base64"]) == ("{\x1b", None)
    assert cli("dead", "show", "bb", "--json").document["body"] is None


def test_show_has_bytes_that_are_no_text(cli: Cli) -> None:
    with Ledger.open(_url()) as ledger:
        ledger.dead_letters.keep(DeadLetter(ROW, b"\xff\xfe"))
    assert base64.b64decode(cli("dead", "show", "aa", "--json").document["body_base64"]) == b"\xff\xfe"


@pytest.mark.usefixtures("letters")
def test_remove_forgets_what_is_named(cli: Cli) -> None:
    assert cli("dead", "remove", "aa").out == "aa removed\n"
    assert [row["letter_id"] for row in cli("dead", "list", "--json").document] == ["bb"]
    said = cli("dead", "remove", "aa")
    assert said.status == 2
    assert "there is no dead letter 'aa'" in said.err
    assert cli("dead", "remove", "--all").out == "bb removed\n"
    assert cli("dead", "list", "--json").document == []


@pytest.mark.usefixtures("letters")
def test_what_cannot_be_sent_again_says_why_and_stays(cli: Cli) -> None:
    said = cli("dead", "retry", "bb")
    assert said.status == 2
    assert "bb cannot be requeued: its body of 1,000,000,000 bytes was too long" in said.err
    assert len(cli("dead", "list", "--json").document) == 2


@pytest.mark.usefixtures("letters")
def test_retry_queues_and_removes(cli: Cli) -> None:
    assert cli("dead", "retry", "aa").out == "aa requeued\n"
    assert [row["letter_id"] for row in cli("dead", "list", "--json").document] == ["bb"]


@pytest.mark.usefixtures("letters")
def test_retry_without_a_broker_keeps_the_message(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNTURN_BROKER_URL", "redis://127.0.0.1:1/0")
    said = cli("dead", "retry", "aa")
    assert said.status == 3
    assert "no broker answers" in said.err
    assert len(cli("dead", "list", "--json").document) == 2


@pytest.mark.parametrize("command", ["retry", "remove"])
def test_none_named_is_a_mistake_and_not_all_of_them(cli: Cli, command: str) -> None:
    said = cli("dead", command)
    assert said.status == 2
    assert "or --all" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("command", ["retry", "remove"])
def test_ids_beside_all_are_a_mistake(cli: Cli, command: str) -> None:
    said = cli("dead", command, "aa", "--all")
    assert (said.status, said.out) == (2, "")
    assert "not both" in said.err
    assert len(cli("dead", "list", "--json").document) == 2
