"""What docs/getting-started.md says beside its commands."""

from __future__ import annotations

import json

from tests.docs.pages import page, table
from tests.support.brokers.node import POLICY
from workers.cli import exit_codes


def test_exit_statuses_are_those_of_the_program() -> None:
    own = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert {int(code) for code, _ in table(page("docs/getting-started.md").text, "Exit status")} == own


def test_policy_for_rabbitmq_is_the_one_of_the_tests() -> None:
    mark = "tests/docs/test_getting_started.py::test_policy_for_rabbitmq_is_the_one_of_the_tests"
    (block,) = [block.text for block in page("docs/getting-started.md").blocks if mark in block.tested_by]
    made, set_ = block.splitlines()
    assert made.endswith("--default-queue-type quorum")
    assert json.loads(set_.split("'")[3]) == json.loads(POLICY)
    assert set_.split("'")[1] == "^runturn$"
