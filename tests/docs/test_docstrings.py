"""The examples in docstrings run, wherever in the package they are.

They find the streams that the pages use, under the same names.
"""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import tailrace as tr
from support.docs.data import DATA, SCHEMAS, prepare
from tailrace.testing.spark_types import spark_schema

PACKAGE = Path(tr.__file__).parent
TIMES = {
    "bids": "ts",
    "views": "seen",
    "clicks": "clicked",
    "events": "ts",
    "offers": "begins",
    "orders": "at",
    "trades": "ts",
}


def _modules() -> list[ModuleType]:
    """All that have an example: importing the others would take longer than the examples do."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]
    return [importlib.import_module(name.removesuffix(".__init__")) for name in names]


def _tests() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for module in _modules() for test in finder.find(module) if test.examples]


@pytest.mark.parametrize("test", _tests(), ids=lambda test: test.name)
def test_an_example_runs(test: doctest.DocTest, request: pytest.FixtureRequest, short_path: Path) -> None:
    names = _names(request, short_path) if re.search(r"\b(spark|bids|views|offers)\b", test.docstring or "") else {}
    for example in test.examples:
        example.source = example.source.replace(DATA, f"{short_path}/") if names else example.source
        assert doctest.SKIP not in example.options, "an example that is not run cannot be trusted"
    test.globs = {**test.globs, "tr": tr, "pa": pa, "pc": pc, **names}
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def _names(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    spark: SparkSession = request.getfixturevalue("spark")  # most examples need none
    prepare(folder)
    streams = {
        name: tr.stream(spark.readStream.schema(spark_schema(schema)).parquet(str(folder / name))).withWatermark(
            TIMES.get(name, "ts"), "1 minute"
        )
        for name, schema in SCHEMAS.items()
    }
    return {"spark": spark, **streams}


def test_there_are_examples() -> None:
    assert len(_tests()) > 60
