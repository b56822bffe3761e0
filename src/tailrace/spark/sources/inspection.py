"""Which DataFrames Tailrace can take, and what their sources can do, decided before anything starts.

Upstream operators and sources are found in the analysed plan (``private.streaming_plan``).
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tailrace.errors import AnalysisError
from tailrace.spark.expressions.lineage import passed_on
from tailrace.spark.expressions.plans import plan_of
from tailrace.spark.private import expression_ids, streaming_plan

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
"""They give an epoch again by its offsets, however often, also after Spark has committed it."""


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
    for node in streaming_plan(frame):
        if node.name == "StreamingRelation":
            kind, options = node.file_source()
            cleaned = options.get("cleansource", "off").lower()
            if kind not in _FILES:
                reasons.append(f"source {kind} is not known to give an epoch twice")
            elif cleaned != "off":
                reasons.append(f"files are cleaned (cleanSource {cleaned}) once an epoch is committed")
        elif node.name == "StreamingRelationV2":
            kind, options = node.table_source()
            if kind not in _REREAD:
                reasons.append(f"source {kind} is not known to give an epoch twice")
            elif kind == "kafka" and options.get("failondataloss", "true").lower() == "false":
                # By default the query fails where records of an epoch are gone. A replay must not be smaller instead.
                reasons.append(
                    "Kafka leaves out records that are gone (failOnDataLoss false) when an epoch is read again"
                )
        elif node.is_leaf:
            reasons.append(f"{node.name} is not known to give an epoch twice")
    return tuple(dict.fromkeys(reasons))


_NUMBERED = frozenset({"rate", "rate-micro-batch"})


def numbers_tasks(frame: DataFrame) -> bool:
    """Whether its sources give the tasks of an epoch the same numbers when the epoch is read again.

    Files and ``rate`` do. Kafka's source numbers the parts of a topic in the order of a map, which is one when offsets
    come from the broker and may be another one when they come from Spark's log. Of others nothing is known.
    """
    nodes = [node for node in streaming_plan(frame) if node.is_leaf]
    return all(
        node.file_source()[0] in _FILES
        if node.name == "StreamingRelation"
        else node.name == "StreamingRelationV2" and node.table_source()[0] in _NUMBERED
        for node in nodes
    )


_OPAQUE = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow", "MapPartitions", "Generate"})
"""Operators whose output columns are new ones, even where they hold the same values."""


def carries(before: DataFrame, after: DataFrame, name: str) -> bool:
    """Whether a column of ``before`` is, by the plan, the same in ``after``, which is made of it.

    Where an operator between them is opaque, a column of the same name is taken for the same.
    """
    first, last = (expression_ids(frame, name) for frame in (before, after))
    if len(first) != 1 or len(last) != 1:
        return False
    return first == last or _opaque(after) > _opaque(before)


def kept_time(before: DataFrame, after: DataFrame, name: str) -> str | None:
    """The name of an event time's column in ``after``, which is made of ``before``; None: it is not there any more.

    A column of the same name is taken for it, whatever it is made of.
    """
    if name in after.columns:
        return name
    own = plan_of(before).output[before.columns.index(name)]
    found = [each.name for each in passed_on(plan_of(after), own)]
    return found[0] if len(found) == 1 else None


def _opaque(frame: DataFrame) -> int:
    return sum(node.name in _OPAQUE for node in streaming_plan(frame))


def _refuse_stateful(source: DataFrame) -> None:
    for node in streaming_plan(source):
        if node.name in _STATEFUL:
            raise AnalysisError(
                f"{_STATEFUL[node.name]} before tr.stream() is Spark's own stateful operator, and its state could fall "
                "apart from Tailrace's after a crash: move it behind Tailrace (in foreachBatch), or write its result "
                "to a table first and stream from that"
            )
        if node.name == "Join" and len(node.streaming_inputs) > 1:
            raise AnalysisError(
                "a join of two streams before tr.stream() is Spark's own stateful operator, and its state could fall "
                "apart from Tailrace's after a crash: write its result to a table first and stream from that"
            )
