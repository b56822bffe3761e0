"""A stream enriched with a static DataFrame: Spark's own join, which keeps no state, checked before Spark sees it.

Pure, except for the plan that Spark makes. The table is read as Spark reads any static DataFrame: a row that is
replayed meets what the table holds then, so a table that changes makes replays differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from tailrace.api.columns import resolve, unquoted
from tailrace.errors import AnalysisError
from tailrace.spark.sources.schema import fields_of

_WITHOUT_TABLE = ("leftsemi", "left_semi", "leftanti", "left_anti")  # these give no column of the table
_HOW = ("inner", "left", "leftouter", "left_outer", *_WITHOUT_TABLE)


def enriched(source: DataFrame, table: object, on: Sequence[object], how: object) -> DataFrame:
    """The stream's rows with the table's columns. ``on``: names of columns that both have, or conditions."""
    if not isinstance(table, DataFrame):
        raise AnalysisError(
            f"join takes another tailrace.stream(...), or a static DataFrame, but got {type(table).__name__}: make one "
            f"of it with spark.createDataFrame or spark.read"
        )
    if table.isStreaming:
        raise AnalysisError("join: the other side is a streaming DataFrame: wrap it in tailrace.stream(...) too")
    kind = how.strip().lower() if isinstance(how, str) else ""
    if kind not in _HOW:
        raise AnalysisError(
            f"join: with a table, how must be one of {', '.join(_HOW)}, but is {how!r}: a row of the table without a "
            f"match has no place in a stream"
        )
    names = [each for each in on if isinstance(each, str)]
    conditions = [each for each in on if isinstance(each, Column)]
    if names and conditions:
        raise AnalysisError("join: on takes names, or conditions such as F.col('a') == F.col('b'), and not both")
    for which, frame in (("the stream", source), ("the table", table)):
        for name in names:
            resolve(name, fields_of(frame.schema), f"join: on, in {which}")
    keys = [unquoted(name) for name in names]
    others = {name.lower() for name in source.columns} - {name.lower() for name in keys}
    twice = [name for name in table.columns if name.lower() in others]
    if twice and kind not in _WITHOUT_TABLE:
        raise AnalysisError(
            f"join: both the stream and the table have {', '.join(twice)}, and a joined row can have each name once: "
            f"rename or drop them in the table, for example with table.withColumnRenamed"
        )
    try:
        return source.join(table, conditions or keys, kind)
    except PySparkException as error:
        raise AnalysisError(f"join: {str(error).splitlines()[0]}") from error
