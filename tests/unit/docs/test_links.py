"""Documents lead somewhere: links, anchors, and the files and variables that they name."""

from __future__ import annotations

import re

import pytest

from ops.settings import PREFIX, RESERVED, Settings
from tests.docs.pages import PAGES, ROOT, Page
from tests.docs.reference import models

TREES = r"(?:adapters|ops|workers|remote|tests|docs|\.ci)/[\w/.-]+"
VARIABLE = re.compile(rf"\b{PREFIX}[A-Z][A-Z_]*[A-Z]\b")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@every_page
def test_links_lead_somewhere(page: Page) -> None:
    for target in page.links:
        path, _, anchor = target.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        if anchor:
            assert anchor in Page(file).anchors, target


@every_page
def test_files_that_are_named_exist(page: Page) -> None:
    for span in page.spans:
        if re.fullmatch(TREES, span) and "*" not in span:
            assert (ROOT / span).exists(), span


@every_page
def test_variables_that_are_named_are_settings(page: Page) -> None:
    tables = models()
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for table, model in tables.items():
        known |= {f"{PREFIX}{table}__{name}".upper() for name in model.model_fields}
    assert set(VARIABLE.findall(page.text)) - known - RESERVED - _of_grafana() == set()


def _of_grafana() -> set[str]:
    """Variables that are Grafana's to read."""
    files = (ROOT / "ops" / "grafana" / "provisioning").rglob("*.yaml")
    return {name for file in files for name in VARIABLE.findall(file.read_text())}


def test_no_document_stands_alone() -> None:
    """Whoever starts at the README gets everywhere."""
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        file = ahead.pop()
        if file in reached:
            continue
        reached.add(file)
        if file.suffix == ".md":
            targets = (target.partition("#")[0] for target in Page(file).links)
            ahead += [(file.parent / path).resolve() for path in targets if path]
    assert {page.path for page in PAGES} <= reached
