"""Versions of agents: how they are read, ordered, and judged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.contract import AgentConfig
from adapters.registry import BUILT_IN
from adapters.versions import Standing, Unsupported, Versions, find_version, is_version, reaches, verdict_on

KNOWN = Versions(
    proved=("1.0.9", "2.1.197", "2.1.330"),
    covers=("success", "resume"),
    unsupported=(
        Unsupported("it says nothing of its end", mended="2.1.0"),
        Unsupported("it loses its session", first="2.2.0", mended="2.3.0"),
    ),
)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("1.0.128 (Claude Code)\n", "1.0.128"),
        ("codex-cli 0.169.0\n", "0.169.0"),
        ("0.61.0", "0.61.0"),
        ("v0.45.0-nightly.20260529.abc1234\n", "0.45.0-nightly.20260529.abc1234"),
        ("tinker 1.1", "1.1"),
        ("codex-cli 0.170.0-alpha.3+build.7", "0.170.0-alpha.3+build.7"),
        ("usage: claude [options]", None),
        ("1.0-" + "x" * 100, None),
        ("", None),
    ],
)
def test_version_is_found_in_what_a_program_says_of_itself(says: str, version: str | None) -> None:
    assert find_version(says) == version


@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("2.1.197", Standing.PROVED),
        ("2.1.330+build.7", Standing.PROVED),  # the same code, built again
        ("1.0.9", Standing.PROVED),  # proved, whatever is known of those around it
        ("1.0.128", Standing.UNSUPPORTED),
        ("2.0.99999", Standing.UNSUPPORTED),
        ("2.1.0-beta.2", Standing.UNSUPPORTED),  # comes before 2.1.0
        ("2.1.0", Standing.UNPROVED),
        ("2.1", Standing.UNPROVED),
        ("2.1.330-nightly.20260529", Standing.UNPROVED),
        ("2.2.0", Standing.UNSUPPORTED),
        ("2.2", Standing.UNSUPPORTED),
        ("2.3.0", Standing.UNPROVED),
        ("10.0.0", Standing.UNPROVED),
        ("latest", Standing.UNPROVED),  # nobody can say that it does not work
        (None, Standing.UNKNOWN),
    ],
)
def test_version_is_judged_by_what_is_known_of_it(version: str | None, standing: Standing) -> None:
    assert verdict_on(version, KNOWN).standing is standing


def test_verdict_says_what_was_not_proved_and_what_goes_wrong() -> None:
    assert verdict_on("2.1.330", KNOWN).words is None
    assert verdict_on("2.1.50", KNOWN).words == (
        "not tested with 2.1.50: success and resume were tested with 1.0.9, 2.1.197 and 2.1.330"
    )
    assert verdict_on("1.0.128", KNOWN).words == "1.0.128 is known not to work: it says nothing of its end"
    plain = Versions(proved=("1.0", "1.2"))
    assert verdict_on("1.1", plain).words == "not tested with 1.1, only with 1.0 and 1.2"
    assert verdict_on("1.1", Versions()).words is None  # its adapter says nothing of versions


def test_operator_may_allow_one_version_and_is_told_what_it_does() -> None:
    allowed = verdict_on("1.0.128", KNOWN, ("1.0.128",))
    assert (allowed.standing, allowed.refused) == (Standing.ALLOWED, False)
    assert "it says nothing of its end" in (allowed.words or "")
    assert verdict_on("1.0.127", KNOWN, ("1.0.128",)).refused
    assert verdict_on("2.1.330", KNOWN, ("2.1.330",)).standing is Standing.PROVED


@pytest.mark.parametrize(
    "ordered",
    [
        ["1.0.128", "2.0.0", "2.0.76", "2.1.0", "2.1.32", "2.1.330"],
        ["0.45.0-nightly.20260528", "0.45.0-nightly.20260529", "0.45.0-preview.1", "0.45.0-preview.10", "0.45.0"],
    ],
)
def test_versions_are_ordered_by_their_numbers_and_prereleases_come_first(ordered: list[str]) -> None:
    for number, mended in enumerate(ordered):
        known = Versions(unsupported=(Unsupported("it fails", mended=mended),))
        assert [verdict_on(version, known).refused for version in ordered] == [
            place < number for place in range(len(ordered))
        ]


@pytest.mark.parametrize(
    ("version", "reached"), [("2.1.39", False), ("2.1.40", True), ("2.1.330", True), ("dev", False), (None, False)]
)
def test_version_is_reached_only_if_it_is_known(version: str | None, reached: bool) -> None:
    assert reaches(version, "2.1.40") is reached


@given(st.text(), st.text(), st.text())
def test_any_text_is_judged(version: str, first: str, mended: str) -> None:
    known = Versions((first,), (), (Unsupported("it fails", first, mended),))
    assert verdict_on(version, known).standing in Standing
    if not is_version(version):
        assert not verdict_on(version, known).refused


def test_tables_of_our_own_agents_name_versions_and_prove_what_they_name() -> None:
    known = [entry.load()(AgentConfig()).capabilities.versions for entry in BUILT_IN]
    tables = [versions for versions in known if versions is not None]
    assert len(tables) == len(known) - 1  # a replay has none
    for versions in tables:
        bounds = [bound for fault in versions.unsupported for bound in (fault.first, fault.mended) if bound]
        assert all(is_version(version) for version in (*versions.proved, *bounds))
        assert versions.covers
        assert all(verdict_on(version, versions).standing is Standing.PROVED for version in versions.proved)
