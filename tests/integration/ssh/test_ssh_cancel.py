"""A cancel ends everything that a turn has on its host: within seconds, or once the host can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.protocol.result import Status
from tests.support.fleets.fleet import Fleet
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_logins import STUBBORN_TOOL, Login, Witness, logins, ssh_fleet
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

LINES = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()

# An agent that takes neither INT nor TERM, so that the whole ladder is climbed.
STUBBORN_AGENT = f"trap '' INT TERM; {STUBBORN_TOOL.strip()}"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that would never end by itself."""

    id: str
    login: Login
    witness: Witness


@dataclass(frozen=True, slots=True)
class Place:
    """A fleet with a worker, and its hosts."""

    fleet: Fleet
    sshd: Sshd
    hosts: list[Login]
    link: Link | None

    def begin(self, tools: str = STUBBORN_TOOL) -> list[Turn]:
        """A turn at each login, in the middle."""
        return [self._begin(login, tools) for login in self.hosts]

    def cancel(self, turns: list[Turn]) -> None:
        """Have all of them cancelled, and wait until their worker has heard of it."""
        renewed_at = [self._renewed_at(turn) for turn in turns]
        for turn in turns:
            assert self.fleet.client.cancel(turn.id)
        until(
            # The renewal after the next one was asked for when the cancel was in the ledger.
            lambda: all(self._renewed_at(turn) > at + 2 for turn, at in zip(turns, renewed_at, strict=True)),
            "the worker to know",
        )

    def assert_cancelled(self, turns: list[Turn]) -> None:
        """Nothing of them is left, and that is what their results say."""
        for turn in turns:
            result = self.fleet.result(turn.id)
            assert result.error is not None
            assert (result.status, result.error.kind) == (Status.CANCELLED, "turn_cancelled")
            assert len(turn.login.starts) == len(set(turn.login.starts))
            turn.login.gone_at()
            until(lambda turn=turn: not list(turn.login.spools.iterdir()), "the spools to be removed")

    def _begin(self, login: Login, tools: str) -> Turn:
        play = login.play("play", LINES[:4], LINES[4:], tools=tools)
        turn_id = self.fleet.client.enqueue(login.request(self.fleet, agent="scripted", options=play.options))
        until(lambda: len(self.fleet.events(turn_id)) > 2, "the turn to be under way")
        until(lambda: any("stubborn" in line for line in login.left().values()), "its tool")
        return Turn(turn_id, login, login.witness(f"{turn_id}.1"))

    def _renewed_at(self, turn: Turn) -> float:
        return self.fleet.ledger.reports.turn(turn.id).owner_expires or 0.0


@contextmanager
def open_place(root: Path, link: Link | None, **settings: str) -> Iterator[Place]:
    """A new one."""
    need("sshd")
    with Sshd(link=link) as sshd, logins(sshd, root) as hosts, ssh_fleet(root, hosts, **settings) as fleet:
        fleet.start_worker()
        yield Place(fleet, sshd, hosts, link)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all of them, behind a link where there can be one."""
    with ExitStack() as around:
        link = around.enter_context(Link()) if Link.available() is None else None
        yield around.enter_context(open_place(tmp_path_factory.mktemp("cancel"), link))


@pytest.mark.parametrize("tools", [STUBBORN_TOOL, STUBBORN_AGENT], ids=["stubborn_tool", "stubborn_agent"])
def test_cancel_ends_everything(place: Place, tools: str) -> None:
    """It takes seconds, the ladder alone two, or four; more where the machine has other things to do."""
    turns = place.begin(tools)
    for turn in turns:
        turn.login.come_first()
    with ThreadPoolExecutor(2 * len(turns)) as pool:
        commands = [pool.submit(place.fleet.command, "cancel", turn.id) for turn in turns]
        gone_at = [pool.submit(turn.login.gone_at) for turn in turns]
    assert [done.result().returncode for done in commands] == [0] * len(turns)
    for turn, gone in zip(turns, gone_at, strict=True):
        took_s = gone.result() - turn.witness.at("reason")
        print(f"{turn.login.name}: everything was gone {took_s:.1f} s after the host had heard of the cancel")
    place.assert_cancelled(turns)


def test_cancel_while_the_link_is_cut_is_carried_out_once_it_is_mended(place: Place) -> None:
    need_links()
    assert place.link
    turns = place.begin()
    place.link.cut()
    place.cancel(turns)
    assert not any(turn.witness.words("reason") for turn in turns)
    place.link.mend()
    place.assert_cancelled(turns)
    assert all(turn.witness.words("reason") == ["cancel"] for turn in turns)


def test_cancel_while_the_server_is_away_is_carried_out_once_it_is_back(place: Place) -> None:
    turns = place.begin()
    place.sshd.stop()
    place.cancel(turns)
    assert not any(turn.witness.words("reason") for turn in turns)
    place.sshd.start()
    place.assert_cancelled(turns)
    assert all(turn.witness.words("reason") == ["cancel"] for turn in turns)


def test_cancel_that_cannot_reach_the_host_is_carried_out_by_the_lease(tmp_path: Path) -> None:
    with open_place(tmp_path, None, agent__lease_ms="10000") as place:
        turns = place.begin()
        place.sshd.stop()
        place.cancel(turns)
        for turn in turns:
            turn.login.gone_at()
            assert turn.witness.words("reason") == ["lease"]
        place.sshd.start()
        place.assert_cancelled(turns)
