"""What is cut off for longer than its lease is ended by its host, to the last process, and goes on afterwards."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.command import Command
from adapters.protocol.result import Status, TurnResult
from remote.programs import Attach, start_request
from remote.spool import Spool
from tests.integration.turns.test_bills import SONNET
from tests.support.fleets.fleet import Fleet, Worker
from tests.support.needs import need
from tests.support.places import RECORDINGS
from tests.support.ssh.links import Link, need_links
from tests.support.ssh.ssh_logins import STUBBORN_TOOL, Login, Play, Witness, logins, ssh_fleet
from tests.support.ssh.sshd import Sshd
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

LEASE_S = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn with a tool that is hard to end."""

    id: str
    login: Login
    play: Play
    witness: Witness

    @property
    def ended_after_s(self) -> float:
        """Seconds from the last heartbeat until nothing of its agent ran any more, by the clock of the host."""
        return self.witness.at("end") - self.witness.at("heartbeat")


@contextmanager
def under_way(root: Path, link: Link | None = None) -> Iterator[tuple[Fleet, Worker, list[Turn]]]:
    """A turn at each login, in the middle."""
    need("sshd")
    with ExitStack() as around:
        sshd = around.enter_context(Sshd(link=link))
        hosts = around.enter_context(logins(sshd, root))
        fleet = around.enter_context(ssh_fleet(root, hosts, agent__lease_ms=f"{LEASE_S}000"))
        worker = fleet.start_worker()
        yield fleet, worker, [_begun(fleet, login) for login in hosts]


def _begun(fleet: Fleet, login: Login) -> Turn:
    lines = (RECORDINGS / "a_parallel_tools.jsonl").read_text().splitlines()
    play = login.play("play", lines[:4], lines[4:], tools=STUBBORN_TOOL)
    turn_id = fleet.client.enqueue(login.request(fleet, agent="scripted", options=play.options))
    until(lambda: len(fleet.events(turn_id)) > 2, "the turn to be under way")
    until(lambda: any("stubborn" in line for line in login.left().values()), "its tool")
    return Turn(turn_id, login, play, login.witness(f"{turn_id}.1"))


def _assert_ended_by_its_lease(turn: Turn) -> None:
    assert turn.witness.words("reason") == ["lease"]
    assert turn.ended_after_s > LEASE_S - 1  # the host counts whole seconds
    print(f"{turn.login.name}: {turn.ended_after_s:.1f} s after the last heartbeat, with a lease of {LEASE_S} s")


def _without_followers(login: Login) -> list[str]:
    """A server that has not noticed the cut keeps the shell that follows for it, with its `tail`."""
    return [line for line in login.left().values() if not line.startswith("tail ")]


def test_nothing_outlives_a_cut_longer_than_the_lease_and_the_turn_goes_on_after_it(tmp_path: Path) -> None:
    need_links()
    with Link() as link, under_way(tmp_path, link) as (fleet, _, turns):
        link.cut()
        for turn in turns:
            until(lambda turn=turn: not _without_followers(turn.login), "the end of all processes")
            _assert_ended_by_its_lease(turn)
        for turn in turns:
            assert fleet.ledger.reports.result(turn.id) is None
            turn.play.cue(2)
        link.mend()
        for turn in turns:
            _assert_second_attempt(fleet, turn, fleet.result(turn.id))


def _assert_second_attempt(fleet: Fleet, turn: Turn, result: TurnResult) -> None:
    assert (result.status, result.attempts, result.host) == (Status.COMPLETED, 2, turn.login.name)
    events = fleet.events(turn.id)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ended = [event["error_kind"] for event in events if event["event"] == "attempt_ended"]
    assert ended == ["host_lost", None]
    assert turn.login.starts == [f"{turn.id}.1", f"{turn.id}.2"]
    first, second = fleet.ledger.accounting.usage_of(turn.id).values()
    assert not first.complete  # a replay has no session files: only what it printed is known
    assert second.source.observed
    assert second.by_model[SONNET].tokens.input_tokens == 1050
    turn.login.gone_at()


def test_nothing_outlives_a_killed_worker_that_nobody_follows(tmp_path: Path) -> None:
    with under_way(tmp_path) as (_, worker, turns):
        worker.kill()
        for turn in turns:
            turn.login.gone_at()
            _assert_ended_by_its_lease(turn)


def test_heartbeat_that_a_cut_link_has_kept_renews_nothing(tmp_path: Path) -> None:
    need("sshd")

    async def send_to_all() -> None:
        await asyncio.gather(*(_send_late(login) for login in hosts))

    with Sshd() as sshd, logins(sshd, tmp_path) as hosts:
        asyncio.run(send_to_all())


async def _send_late(login: Login) -> None:
    """Attach as a worker does, and write heartbeats: each says how long after the host's answer it was sent."""
    stale_s = 1
    spool, nonce = Spool(str(login.spools), "late", "seal"), secrets.token_hex(16)
    request = start_request(
        Attach(spool, "follower", nonce, 0, stale_s), Command(argv=("sleep", "300"), cwd="/"), 300
    )
    host = login.host()
    channel = await host.open_channel()
    await channel.write(request.program)
    said = b""
    for word, reply in ((f"RT-SEND {nonce} go", b"go\n"), (f"RT-READY {nonce}", b"")):
        while word.encode() not in said:
            said += await channel.read()
        await channel.write(reply)
    too_late = time.monotonic() + stale_s + 2  # the host counts whole seconds
    await asyncio.to_thread(until, lambda: time.monotonic() > too_late, "a heartbeat of the beginning to be old")
    await channel.write(b"0\n")
    await channel.write(b"1000\n")  # fresh, however slow this machine may be
    witness = login.witness("late")
    await asyncio.to_thread(until, lambda: witness.words("heartbeat"), "the fresh heartbeat")
    _, beats = witness.words("heartbeat")
    assert beats == "1", "only one was taken"
    await channel.write(b"C\n")
    while b'"reason":"cancel"' not in said:
        said += await channel.read()
    await channel.close()
    await host.close()
