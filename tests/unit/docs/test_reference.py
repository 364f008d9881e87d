"""What documents have from the code is up to date, and the code says what everything means."""

from __future__ import annotations

import pytest

from tests.docs import rooms
from tests.docs.pages import PAGES, Page
from tests.docs.reference import generated, models, parts, regions


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_those_of_the_code(page: Page) -> None:
    assert generated(page.text) == page.text, "run: make docs"


def test_every_part_stands_in_a_document() -> None:
    assert set().union(*(regions(page.text) for page in PAGES)) == parts()


@pytest.mark.parametrize("table", models())
def test_every_setting_option_and_field_says_what_it_means(table: str) -> None:
    fields = models()[table].model_fields
    assert [name for name, field in fields.items() if not field.description] == []


def test_no_folder_is_crowded() -> None:
    assert rooms.crowded() == {}
