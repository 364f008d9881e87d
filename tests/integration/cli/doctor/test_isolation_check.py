"""What `runturn doctor` says of a host's isolation."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.isolation import Isolation
from remote.containment import Containment
from remote.local import LocalHost
from tests.support.needs import need, need_namespaces
from workers.doctor.host_checks import isolation
from workers.hosts.inventory import TurnHost

NAMESPACE, SANDBOX = Containment(Isolation.NAMESPACE), Containment(Isolation.SANDBOX)


def host(folder: Path, containment: Containment, *, able: bool = True, systemd: bool = False) -> TurnHost:
    """A host, whose own programs make no namespaces if it is not `able` to, and which has no systemd."""
    programs = folder / "programs"
    programs.mkdir()
    for name in (() if able else ("unshare", "bwrap")) + (() if systemd else ("systemd-run",)):
        (programs / name).write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    return TurnHost(LocalHost(environment, "h1"), str(folder / "spool"), least=containment)


async def test_none_is_as_configured(tmp_path: Path) -> None:
    check = await isolation(host(tmp_path, Containment(Isolation.NONE), able=False))
    assert (check.ok, check.warning, check.detail) == (True, False, "none, as configured")


@pytest.mark.parametrize("containment", [NAMESPACE, SANDBOX], ids=lambda each: each.isolation)
async def test_level_is_told_with_its_program(tmp_path: Path, containment: Containment) -> None:
    need_namespaces()
    program = need("bwrap" if containment is SANDBOX else "unshare")
    check = await isolation(host(tmp_path, containment))
    assert (check.ok, check.warning) == (True, False)
    assert check.detail.startswith(f"{containment.isolation}, by {program}; limits are checked once a second")


@pytest.mark.parametrize("containment", [NAMESPACE, SANDBOX, Containment(max_processes=10)])
async def test_host_that_cannot_do_what_is_demanded_fails_with_a_remedy(
    tmp_path: Path, containment: Containment
) -> None:
    check = await isolation(host(tmp_path, containment, able=False))
    assert not check.ok
    assert "Operation not permitted" in check.detail and "max_user_namespaces" in check.remedy


async def test_limit_that_nobody_enforces_fails(tmp_path: Path) -> None:
    need_namespaces()
    check = await isolation(host(tmp_path, Containment(max_cpus=1.5)))
    assert not check.ok
    assert "max_cpus requires a systemd scope" in check.detail


async def test_missing_path_of_sandboxes_is_named(tmp_path: Path) -> None:
    need_namespaces()
    need("bwrap")
    check = await isolation(host(tmp_path, Containment(Isolation.SANDBOX, shown=("/missing",))))
    assert (check.ok, check.remedy) == (False, "")
    assert "there is no /missing" in check.detail
