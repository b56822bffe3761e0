"""Which DataFrames Tailrace can take, and what their sources can do, decided before anything starts.

Upstream operators and sources are found in the analysed plan. PySpark offers no public way to it other than printed
text, so this one file walks the JVM's tree; nothing else may.
"""

from __future__ import annotations

from collections.abc import Iterator
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

_FILES = frozenset({"parquet", "json", "csv", "orc", "text", "avro", "xml", "binaryfile"})
_REREAD = frozenset({"kafka", "rate", "rate-micro-batch"})
"""They give an epoch again by its offsets, however often, also after Spark has told them that it is committed."""


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


def read_once(frame: DataFrame) -> tuple[str, ...]:
    """Why some of its sources may not give an epoch again once Spark has committed it. Unknown sources may not."""
    reasons = []
    for node in _streaming(frame):
        name = node.nodeName()
        if name == "StreamingRelation":
            source = node.dataSource()
            kind = str(source.className()).lower()
            if kind not in _FILES:
                reasons.append(f"source {kind} is not known to give an epoch twice")
            elif (cleaned := _option(source.options(), "cleanSource")) not in (None, "off"):
                reasons.append(f"files are cleaned (cleanSource {cleaned}) once an epoch is committed")
        elif name == "StreamingRelationV2":
            kind = str(node.sourceName()).lower()
            if kind not in _REREAD:
                reasons.append(f"source {kind} is not known to give an epoch twice")
            elif kind == "kafka" and str(node.extraOptions().get("failOnDataLoss")).lower() == "false":
                # By default the query fails where records of an epoch are gone. A replay must not be smaller instead.
                reasons.append(
                    "Kafka leaves out records that are gone (failOnDataLoss false) when an epoch is read again"
                )
        elif node.children().isEmpty():
            reasons.append(f"{name} is not known to give an epoch twice")
    return tuple(dict.fromkeys(reasons))


_OPAQUE = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow", "MapPartitions", "Generate"})
"""They give columns of their own, whatever these hold."""


def carries(before: DataFrame, after: DataFrame, name: str) -> bool:
    """Whether a column of ``before`` is, as far as the plan tells, the same in ``after``, which is made of it.

    Where what lies between is opaque, a column of the same name is taken for the same.
    """
    first, last = (_column_id(frame, name) for frame in (before, after))
    if first is None or last is None:
        return False
    return first == last or _opaque(after) > _opaque(before)


def _column_id(frame: DataFrame, name: str) -> int | None:
    jdf: Any = frame._jdf
    output = jdf.queryExecution().analyzed().output()
    found = [output.apply(i) for i in range(output.size()) if output.apply(i).name() == name]
    return int(found[0].exprId().id()) if len(found) == 1 else None


def _opaque(frame: DataFrame) -> int:
    return sum(node.nodeName() in _OPAQUE for node in _streaming(frame))


def _option(options: Any, name: str) -> str | None:
    pairs = options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        if str(pair._1()).lower() == name.lower():
            return str(pair._2()).lower()
    return None


def _streaming(frame: DataFrame) -> Iterator[Any]:
    """Every operator of the analysed plan that works on a stream."""
    jdf: Any = frame._jdf
    pending = [jdf.queryExecution().analyzed()]
    while pending:
        node = pending.pop()
        if node.isStreaming():
            yield node
            children = node.children()
            pending += [children.apply(i) for i in range(children.size())]


def _refuse_stateful(source: DataFrame) -> None:
    for node in _streaming(source):
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
