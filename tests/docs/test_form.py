"""The form of pages: a sorted glossary, decisions of at most a page, and no navigation entry twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.docs.pages import DOCS, ROOT, named

DECISIONS = sorted(DOCS.glob("adr/0*.md"))
WORDS_MAX = 450
PARTS = ("Context", "Decision", "Rejected", "Consequences")


def test_the_glossary_is_sorted_and_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([^|]+?) \|", (DOCS / "reference" / "glossary.md").read_text(), re.M)
    words = [row.lower() for row in rows if row != "word"]
    assert words == sorted(set(words))


@pytest.mark.parametrize("page", DECISIONS, ids=named)
def test_a_decision_is_at_most_a_page_with_its_rivals(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= WORDS_MAX
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.M) == list(PARTS)
    number = int(page.name[:4])
    assert text.startswith(f"# {number}. ")


def test_every_decision_is_listed_by_its_title() -> None:
    index = (DOCS / "adr" / "index.md").read_text()
    titles = {page.name: page.read_text().splitlines()[0].partition(". ")[2] for page in DECISIONS}
    assert [name for name, title in titles.items() if f"[{title}]({name})" not in index] == []


def test_the_navigation_has_each_page_once() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(set(listed))
