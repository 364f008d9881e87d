"""Run README's commands on bare Debian systems, as each kind of new user. Takes over an hour on two cores."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

from tests.tools.fresh.visit import KINDS, Outcome, visit

_RELEASES = ("bookworm", "trixie")  # Debian 12 and 13
_FOLDER = Path(".fresh")


def main() -> int:
    """Run the commands; return 0 if nothing failed or was left behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fresh", description=__doc__)
    parser.add_argument("--release", choices=_RELEASES, action="append", help="use only this release; repeatable")
    parser.add_argument("--kind", choices=KINDS, action="append", help="run only as this kind of user; repeatable")
    asked = parser.parse_args()
    if (obstacle := _obstacle()) is not None:
        print(f"test-fresh: {obstacle}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the machine is removed
    _FOLDER.mkdir(exist_ok=True)
    lock = (_FOLDER / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("test-fresh: already running in this directory", file=sys.stderr)
        return 1
    outcomes = []
    for release in asked.release or _RELEASES:
        for outcome in visit(release, frozenset(asked.kind or KINDS), _FOLDER):
            outcomes.append(outcome)
            _show(outcome)
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    print(f"{len(outcomes) - failed} passed, {failed} failed; logs are in {_FOLDER}/")
    return 1 if failed else 0


def _obstacle() -> str | None:
    if os.geteuid() != 0:
        return "only root can create the machines"
    missing = [tool for tool in ("mmdebstrap", "unshare", "git") if shutil.which(tool) is None]
    return f"install {' '.join(missing)} first" if missing else None


def _show(outcome: Outcome) -> None:
    word = "failed" if outcome.faults else "passed"
    print(
        f"{word}  {outcome.release:9} {outcome.who:9} {outcome.command:13} {outcome.seconds / 60:5.1f} min"
        f"  {outcome.said}",
        flush=True,
    )
    for fault in outcome.faults:
        print(f"        {fault}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
