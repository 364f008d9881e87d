"""Run the chaos test. Exit with 0 only if nothing was lost, nothing ran twice, and every booking is correct."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.support.ssh.links import Link
from tests.tools.chaos.blows.targets import KINDS, only
from tests.tools.chaos.broker import BROKERS
from tests.tools.chaos.form import FULL, SHORT
from tests.tools.chaos.performance import perform
from tests.tools.chaos.report import last_line, show


def main() -> int:
    """Run it on one broker or on both; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.chaos", description=__doc__)
    parser.add_argument("--broker", choices=[*BROKERS, "both"], default="both")
    parser.add_argument("--short", action="store_true", help="run the short form, as `make test` does")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="kind of blow (repeatable)")
    parser.add_argument("--turns", type=int, help="number of turns of the agent `scripted`")
    parser.add_argument("--real", type=int, help="number of turns of the real Claude Code")
    parser.add_argument("--others", type=int, help="number of turns of each other kind")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeat the run with this seed")
    asked = parser.parse_args()
    if (obstacle := Link.available()) is not None:
        print(f"chaos: cannot cut links: {obstacle}", file=sys.stderr)
        return 1
    names = list(BROKERS) if asked.broker == "both" else [asked.broker]
    form = (SHORT if asked.short else FULL).sized(asked.turns, asked.real, asked.others)
    choice, root = only(asked.only or tuple(KINDS)), Path(tempfile.mkdtemp(prefix="rt-chaos-"))
    reports = []
    for name in names:
        (root / name).mkdir()
        reports.append(perform(form, root / name, name, BROKERS[name], asked.seed, choice))
    show(reports, Console(width=120))
    failed = any(report.faults for report in reports)
    if failed:
        print(f"logs and leftovers are in {root}; repeat with --seed {asked.seed}")
    else:
        shutil.rmtree(root)
    print(last_line(reports))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
