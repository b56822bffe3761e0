"""Links and names of files: what a page outside the site links to, and what pages and sources name, is there.

Links inside the site are checked by ``make docs``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.docs.pages import DOCS, ROOT, named, pages

OUTSIDE = sorted(ROOT.glob("*.md"))
LINE_MAX = 240
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_NAMED = re.compile(r"\bdocs/[\w/-]+\.md")
_SOURCE = re.compile(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`")


@pytest.mark.parametrize("page", OUTSIDE, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_sources_name_pages_that_exist() -> None:
    sources = [
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("tests/**/*.py"),
        *ROOT.glob("scripts/*"),
        *ROOT.glob("examples/*.py"),
    ]
    missing = {
        f"{source.relative_to(ROOT)}: {name}"
        for source in sources
        if source.is_file()
        for name in _NAMED.findall(source.read_text(errors="ignore"))
        if not (ROOT / name).exists()
    }
    assert missing == set()


WRITTEN_BY_TESTS = (DOCS / "reference/spark-examples.md", DOCS / "how-to/coming-from-spark.md")


@pytest.mark.parametrize("page", pages(), ids=named)
def test_pages_name_sources_that_exist(page: Path) -> None:
    places = (ROOT, ROOT / "src" / "tailrace", ROOT / "tests")
    names = set(_SOURCE.findall(page.read_text()))
    assert {name for name in names if not any((place / name).exists() for place in places)} == set()


@pytest.mark.parametrize("page", pages(), ids=named)
def test_lines_are_short_enough_to_review(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    rows = "|" if page in WRITTEN_BY_TESTS else None  # a row of a table has one line
    long = [number for number, line in lines if len(line) > LINE_MAX and not (rows and line.startswith(rows))]
    assert long == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    left_out = [
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in navigation
    ]
    assert left_out == []
