"""Which DataFrames Tailrace can take, decided before anything starts.

Upstream operators are found in the analysed plan. PySpark offers no public way to it other than printed text, so this
one file walks the JVM's tree; nothing else may.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from tailrace.errors import AnalysisError

_STATEFUL = {
    "Aggregate": "groupBy().agg()",
    "Deduplicate": "dropDuplicates()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "FlatMapGroupsWithState": "mapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "Distinct": "distinct()",
    "GlobalLimit": "limit()",
}


def check_source(source: object) -> DataFrame:
    """The DataFrame, or the reason why it cannot be one end of a Tailrace stream."""
    module = type(source).__module__
    if module.startswith("pyspark.sql.connect"):
        raise AnalysisError(
            "this DataFrame belongs to Spark Connect, which gives Python no tasks of its own to route rows from: "
            "use a classic session (SparkSession.builder without .remote(...), SPARK_REMOTE unset)"
        )
    if not isinstance(source, DataFrame):
        raise AnalysisError(f"tr.stream() takes a streaming DataFrame, not {type(source).__name__}")
    if not source.isStreaming:
        raise AnalysisError(
            "tr.stream() takes a streaming DataFrame, and this one is a batch: read it with spark.readStream, or use "
            "Spark's own groupBy for a batch"
        )
    _refuse_stateful(source)
    return source


def _refuse_stateful(source: DataFrame) -> None:
    jdf: Any = source._jdf
    pending = [jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        if not node.isStreaming():
            continue
        name = node.nodeName()
        if name in _STATEFUL:
            raise AnalysisError(
                f"{_STATEFUL[name]} before tr.stream() is Spark's own stateful operator, and its state could fall "
                "apart from Tailrace's after a crash: move it behind Tailrace (in foreachBatch), or write its result "
                "to a table first and stream from that"
            )
        children = node.children()
        nodes = [children.apply(i) for i in range(children.size())]
        if name == "Join" and sum(child.isStreaming() for child in nodes) > 1:
            raise AnalysisError(
                "a join of two streams before tr.stream() is Spark's own stateful operator, and its state could fall "
                "apart from Tailrace's after a crash: write its result to a table first and stream from that"
            )
        pending += nodes
