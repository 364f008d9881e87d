"""README.md and docs/*.md, taken apart: code blocks, commands, links, anchors.

`tests/docs/test_blocks.py` runs each shell block, `tests/unit/docs/test_blocks.py` loads each configuration. A
block that cannot be run there says in a comment before it what runs it:
`<!-- tested by: tests/system/test_demo.py::test_demo_books_what_was_billed -->`. A page whose blocks in a language
are all run by one test says so once: `<!-- promql tested by: … -->`.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.places import ROOT

_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- tested by: ([^>]+?) -->\n+\Z")
_MARK_OF_PAGE = re.compile(r"^<!-- (\w+) tested by: ([^>]+?) -->$", re.MULTILINE)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of code."""

    page: str  # path below the root
    line: int
    language: str
    text: str
    tested_by: tuple[str, ...]  # tests and files that run it; empty: it is run where it stands

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> Iterator[list[str]]:
        """The words of each command in a shell block."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


@dataclass(frozen=True)
class Page:
    """One document."""

    path: Path

    @property
    def name(self) -> str:
        """Its path below the root."""
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text()

    @cached_property
    def prose(self) -> str:
        """Without its code blocks."""
        return _FENCE.sub("", self.text)

    @property
    def blocks(self) -> Iterator[Block]:
        """Its code blocks."""
        of_page = dict(_MARK_OF_PAGE.findall(self.text))
        for match in _FENCE.finditer(self.text):
            mark, language = _MARK.search(self.text, 0, match.start()), match["language"].strip()
            tested_by = mark[1] if mark else of_page.get(language, "")
            line = self.text.count("\n", 0, match.start()) + 1
            yield Block(self.name, line, language, match["text"], tuple(tested_by.split()))

    @property
    def links(self) -> Iterator[str]:
        """Where its links lead, addresses outside left out."""
        for target in _LINK.findall(_INLINE.sub("", self.prose)):
            if "://" not in target and not target.startswith("mailto:"):
                yield target

    @property
    def spans(self) -> Iterator[str]:
        """What stands between backticks in its prose."""
        for match in _INLINE.finditer(self.prose):
            yield match[2]

    @property
    def anchors(self) -> set[str]:
        """What links can lead to: its headings, as code hosts name them, and explicit anchors."""
        seen: Counter[str] = Counter()
        found = set(_ANCHOR.findall(self.prose))
        for heading in _HEADING.findall(self.prose):
            slug = _slug(heading)
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return found


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


PAGES = [
    Page(ROOT / "README.md"),
    Page(ROOT / "CONTRIBUTING.md"),
    *(Page(path) for path in sorted((ROOT / "docs").glob("*.md"))),
]
BLOCKS = [block for page in PAGES for block in page.blocks]


def blocks_to_run(language: str) -> list[Block]:
    """The blocks in this language that no other test runs."""
    return [block for block in BLOCKS if block.language == language and not block.tested_by]


def named_commands() -> Iterator[tuple[str, list[str]]]:
    """Commands of runturn and make that other tests run, or that are between backticks: where, and their words."""
    for block in BLOCKS:
        if block.language == "sh" and block.tested_by:
            yield from ((str(block), words) for words in block.commands)
    for page in PAGES:
        for span in page.spans:
            if span.startswith(("runturn ", "make ")) and "'" not in span:
                yield page.name, span.split()


def page(name: str) -> Page:
    """A document by its path."""
    return next(page for page in PAGES if page.name == name)


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose first column has that title, without markup."""
    lines = text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" |")] for line in lines]
