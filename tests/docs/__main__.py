"""`make docs`: write what documents have from the code."""

from __future__ import annotations

from tests.docs import test_schema
from tests.docs.pages import PAGES
from tests.docs.reference import generated

for page in PAGES:
    page.path.write_text(generated(page.text))
test_schema.write()
