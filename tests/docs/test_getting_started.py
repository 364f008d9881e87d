"""What docs/getting-started.md says beside its commands."""

from __future__ import annotations

from tests.docs.pages import page, table
from workers.cli import status


def test_exit_statuses_are_those_of_the_program() -> None:
    own = {value for name, value in vars(status).items() if name.isupper()}
    assert {int(code) for code, _ in table(page("docs/getting-started.md").text, "Exit status")} == own
