"""What a doctor asks a host, whichever shell answers."""

from __future__ import annotations

import time

import pytest

from remote.errors import HostError, SpawnRefused
from remote.host import Channel
from remote.host_queries import check_spool_root, clock_offset_s, environment_names, may_write
from remote.local import LocalHost
from remote.ssh.channel_limit import shells_on_one_connection
from tests.support.ssh.laboratory import Lab


def host_with(lab: Lab, **variables: str) -> LocalHost:
    return LocalHost({"PATH": lab.path, "HOME": str(lab.home), **variables})


async def test_a_spool_root_is_made_for_its_user_alone_and_nothing_stays_in_it(any_lab: Lab) -> None:
    for root, place in (("~/state/spools", any_lab.home / "state" / "spools"), (str(any_lab.root), any_lab.root)):
        for _ in range(2):
            await check_spool_root(any_lab.host, root)
            assert (place.stat().st_mode & 0o777, list(place.iterdir())) == (0o700, [])


@pytest.mark.parametrize("root", ["/proc/spools", "/dev/null/spools", "/dev/null"])
async def test_a_spool_root_that_takes_nothing_is_refused_with_the_hosts_words(any_lab: Lab, root: str) -> None:
    with pytest.raises(SpawnRefused, match=root.removesuffix("/spools")) as refusal:
        await check_spool_root(any_lab.host, root)
    assert refusal.value.code == "spool_unwritable"


async def test_a_directory_may_be_written_or_not(any_lab: Lab) -> None:
    assert await may_write(any_lab.host, str(any_lab.workspace))
    assert not await may_write(any_lab.host, f"{any_lab.workspace}/missing")


async def test_variables_are_told_by_name_if_they_are_set(any_lab: Lab) -> None:
    host = host_with(any_lab, ODD="a\nFAKE=b\\n", BLANK="", _1="=")
    names = await environment_names(host)
    assert {"PATH", "HOME", "ODD", "_1"} <= names
    assert not names & {"FAKE", "BLANK", "nonce", "script"}


@pytest.mark.parametrize("ahead_s", [-100.0, 0.0, 100.0])
async def test_a_clock_is_off_by_no_more_than_is_certain(any_lab: Lab, ahead_s: float) -> None:
    asked: list[float] = []

    def clock() -> float:
        asked.append(time.time() - ahead_s)
        return asked[-1]

    offset_s = await clock_offset_s(any_lab.host, clock)
    slack_s = asked[-1] - asked[0] + 1.0
    assert abs(ahead_s) - slack_s <= abs(offset_s) <= abs(ahead_s)
    assert offset_s * ahead_s >= 0


class Connections:
    """A host whose connections carry so many shells each, one after the other."""

    path = ""

    def __init__(self, lab: Lab, *shells: int) -> None:
        self.opened = 0
        self.name = lab.host.name
        self._lab = lab
        self._numbers = [number for number, count in enumerate(shells) for _ in range(count)]

    @property
    def rest_s(self) -> float:
        return 0.0

    async def open_channel(self) -> Channel:
        number = self._numbers[min(self.opened, len(self._numbers) - 1)]
        self.opened += 1
        return await host_with(self._lab, SSH_CONNECTION=f"127.0.0.1 {number} 127.0.0.1 22").open_channel()


@pytest.mark.parametrize(
    ("shells", "shared", "opened"),
    [
        ((8,), 4, 4),
        ((1, 1, 1), 1, 3),
        ((3, 3, 3), 3, 7),
        ((2, 3, 3), 3, 6),  # one that had ended still counted
        ((3, 4, 4), 4, 7),
    ],
)
async def test_shells_are_opened_until_it_is_clear_how_many_share_a_connection(
    lab: Lab, shells: tuple[int, ...], shared: int, opened: int
) -> None:
    host = Connections(lab, *shells)
    assert (await shells_on_one_connection(host, 4), host.opened) == (shared, opened)


async def test_a_host_that_does_not_tell_connections_apart_is_not_counted_on(any_lab: Lab) -> None:
    with pytest.raises(HostError, match="SSH_CONNECTION"):
        await shells_on_one_connection(any_lab.host, 3)
