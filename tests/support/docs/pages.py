"""The pages that readers see, and the code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.M | re.S)
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^>]{10,}) -->\s*$")


@dataclass(frozen=True)
class Block:
    """``line`` is that of its first line of code in the page. ``why_not``: why it is not run, empty where it is."""

    page: Path
    line: int
    language: str
    code: str
    why_not: str = ""


def pages() -> list[Path]:
    """README and its neighbours, and every page of the site."""
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of these languages, in order."""
    text = page.read_text()
    found = []
    for fence in _FENCE.finditer(text):
        if fence["language"] not in languages:
            continue
        before = _NOT_RUN.search(text[: fence.start()])
        indent = fence["indent"]
        code = "".join(line.removeprefix(indent) for line in fence["body"].splitlines(keepends=True))
        line = text.count("\n", 0, fence.start("body")) + 1
        found.append(Block(page, line, fence["language"], code, before["why"] if before else ""))
    return found
