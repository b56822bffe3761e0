"""The Python code of README and of every page runs, block by block in one namespace a page, in a local Spark session.

What makes a stream is also planned, so that an example which ``start()`` would refuse fails here too. A block that
cannot run says why in a comment before it: ``<!-- not run: ... -->``. There may be few of those.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.docs.data import DATA, prepare
from support.docs.pages import DOCS, Block, blocks, named, pages
from tailrace.api.stream import Stream

WITH_CODE = [page for page in pages() if blocks(page, "python")]
NOT_RUN_MAX = 6


@pytest.fixture
def folder(short_path: Path) -> Path:
    prepare(short_path)
    return short_path


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    spark.streams.resetTerminated()  # else awaitAnyTermination tells of a query that another test let fail
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_code_of_a_page_runs(page: Path, session: SparkSession, folder: Path, capsys: Any) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__", "spark": session}
    for block in blocks(page, "python"):
        if not block.why_not:
            _run(block, namespace, folder)
    if page == DOCS / "how-to" / "read-progress.md":
        assert _undocumented(namespace["progress"].asDict()) == set()


def _undocumented(progress: dict[str, Any]) -> set[str]:
    """Keys of a progress report that the reference does not name."""
    text = (DOCS / "reference" / "progress.md").read_text()
    parts = [progress, *(part for part in progress.values() if isinstance(part, dict))]
    parts += [entry for name in ("stateOperators", "lookahead") for entry in progress[name]]
    parts += [entry["customMetrics"] for entry in progress["stateOperators"]]
    return {key for part in parts for key in part if f"`{key}`" not in text}


def test_few_blocks_are_not_run() -> None:
    left_out = [
        f"{named(each.page)}:{each.line}" for page in pages() for each in blocks(page, "python") if each.why_not
    ]
    assert len(left_out) <= NOT_RUN_MAX, left_out


def _run(block: Block, namespace: dict[str, Any], folder: Path) -> None:
    """Statement by statement, with line numbers of the page; a stream that a statement makes is planned at once."""
    code = re.sub(re.escape(DATA), f"{folder}/", block.code)
    where = f"{named(block.page)}"
    tree = ast.parse("\n" * (block.line - 1) + code, where)
    for statement in tree.body:
        made: Any
        if isinstance(statement, ast.Expr):
            made = eval(compile(ast.Expression(statement.value), where, "eval"), namespace)
        else:
            exec(compile(ast.Module([statement], []), where, "exec"), namespace)
            names = statement.targets if isinstance(statement, ast.Assign) else []
            made = namespace.get(names[0].id) if names and isinstance(names[0], ast.Name) else None
        if isinstance(made, Stream) and made.relation is not None:
            made.explain()
