"""`make docs`: write what documents have from the code."""

from __future__ import annotations

from tests.docs.pages import PAGES
from tests.docs.reference import generated
from tests.unit.docs import test_schema


def main() -> None:
    """Write all documents, and the schema."""
    for page in PAGES:
        page.path.write_text(generated(page.text))
    test_schema.write()


if __name__ == "__main__":
    main()
