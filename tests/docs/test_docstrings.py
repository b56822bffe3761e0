"""The examples in docstrings of public names run: those of ``tailrace`` itself, of its API and of ``tailrace.testing``.

They find the streams that the pages use, under the same names.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
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

PACKAGES = ("tailrace.api", "tailrace.testing", "tailrace.operators.aggregate.functions")
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
    found = [tr]
    for name in PACKAGES:
        package = importlib.import_module(name)
        found += [
            package,
            *(importlib.import_module(each.name) for each in pkgutil.iter_modules(package.__path__, f"{name}.")),
        ]
    return found


def _tests() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for module in _modules() for test in finder.find(module) if test.examples]


@pytest.mark.parametrize("test", _tests(), ids=lambda test: test.name)
def test_an_example_runs(test: doctest.DocTest, spark: SparkSession, short_path: Path) -> None:
    names = _names(spark, short_path) if re.search(r"\b(spark|bids|views|offers)\b", test.docstring or "") else {}
    for example in test.examples:
        example.source = example.source.replace(DATA, f"{short_path}/") if names else example.source
        assert doctest.SKIP not in example.options, "an example that is not run cannot be trusted"
    test.globs = {**test.globs, "tr": tr, "pa": pa, "pc": pc, **names}
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def _names(spark: SparkSession, folder: Path) -> dict[str, Any]:
    prepare(folder)
    streams = {
        name: tr.stream(spark.readStream.schema(spark_schema(schema)).parquet(str(folder / name))).withWatermark(
            TIMES.get(name, "ts"), "1 minute"
        )
        for name, schema in SCHEMAS.items()
    }
    return {"spark": spark, **streams}


def test_there_are_examples() -> None:
    assert len(_tests()) > 10
