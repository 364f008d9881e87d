"""Documents are read as code hosts and readers read them: nothing in them is overlooked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Page, table

TEXT = """# One `page`, and more!

<a id="marked"></a>
See [there](other.md#part-2), [outside](https://example.org/x) and ![a picture](drawn.svg).
Say `runturn run`, not ``[this](is-code.md)``.

<!-- tested by: tests/a/test_x.py::test_y tests/b/test_z.py::test_q -->
```sh
runturn up   # [no](link.md)
# no heading
```

```sh
runturn down
```

```
bare
```

<!-- sql tested by: tests/a/test_x.py::test_all -->
```sql
SELECT 1
```

## Part 2
## Part 2

| Name | Meaning |
|---|---|
| `a` | the `first` |
| `b` | the second |
"""


def _page(tmp_path: Path) -> Page:
    path = tmp_path / "page.md"
    path.write_text(TEXT)
    return Page(path)


def test_blocks_have_their_language_and_what_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    marked, unmarked, bare, of_page = _page(tmp_path).blocks
    assert (marked.language, marked.line, marked.page) == ("sh", 8, "page.md")
    assert marked.tested_by == ("tests/a/test_x.py::test_y", "tests/b/test_z.py::test_q")
    assert (unmarked.text, unmarked.tested_by) == ("runturn down\n", ())
    assert (bare.language, bare.text) == ("", "bare\n")
    assert of_page.tested_by == ("tests/a/test_x.py::test_all",)


def test_links_anchors_and_spans_are_those_outside_of_code(tmp_path: Path) -> None:
    page = _page(tmp_path)
    assert list(page.links) == ["other.md#part-2", "drawn.svg"]
    assert page.anchors == {"one-page-and-more", "marked", "part-2", "part-2-1"}
    assert "runturn run" in page.spans


def test_table_is_found_by_its_first_column() -> None:
    assert table(TEXT, "Name") == [["a", "the `first"], ["b", "the second"]]
