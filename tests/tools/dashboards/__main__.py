"""Command `python -m tests.tools.dashboards`: write the boards."""

from __future__ import annotations

from tests.support.places import ROOT
from tests.tools.dashboards.boards import BOARDS

FOLDER = ROOT / "ops" / "grafana" / "dashboards"


def main() -> None:
    """Write one file per board and delete all others."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for stale in FOLDER.glob("*.json"):
        stale.unlink()
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(board.json(), encoding="utf-8")


if __name__ == "__main__":
    main()
