"""The form of pages and comments: a sorted glossary, decisions of at most a page, no name of a module that is gone."""

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


def test_comments_name_modules_that_are_there() -> None:
    """``room.module`` in a comment; and paths of files and folders of the package in pages."""
    package = ROOT / "src" / "tailrace"
    paths = [path.relative_to(package) for path in package.rglob("*")]
    modules = {".".join(path.with_suffix("").parts) for path in paths}
    rooms = {path.name for path in package.iterdir() if path.is_dir()}
    gone = []
    for path in package.rglob("*.py"):
        for name in re.findall(r"``([a-z_]+(?:\.\w+)+)``", path.read_text()):
            room, *within = name.split(".")
            if room in rooms and ".".join((room, within[0])) not in modules and not _is_sparks(name):
                gone.append((str(path.relative_to(ROOT)), name))
    for page in DOCS.rglob("*.md"):
        for name in re.findall(r"`(?:src/tailrace/)?([a-z_]+/[a-z_/]*(?:\.py|/))`", page.read_text()):
            if name.split("/")[0] in rooms and Path(name) not in paths:
                gone.append((named(page), name))
    assert gone == []


def _is_sparks(name: str) -> bool:
    """Settings and attributes of Spark's, and files in a checkpoint."""
    return name.startswith(("spark.sql.", "spark.streams")) or name.endswith(".json")
