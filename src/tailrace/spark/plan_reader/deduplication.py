"""``dropDuplicates``, ``distinct`` and ``dropDuplicatesWithinWatermark`` become a deduplication."""

from __future__ import annotations

from tailrace.api.relations import Deduplication
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Node
from tailrace.spark.plan_reader.reading import Made, Reading


def read_deduplication(node: Node, reading: Reading) -> Made:
    return _deduplication(node, reading, within=False)


def read_deduplication_within_watermark(node: Node, reading: Reading) -> Made:
    return _deduplication(node, reading, within=True)


def _deduplication(node: Node, reading: Reading, *, within: bool) -> Made:
    columns = reading.columns()
    keys = node.compared()
    names = [columns.take(key) for key in keys]
    compared = {key.id for key in keys}
    passed = [column for column in node.child.output if column.id in reading.needed or column.id in compared]
    leaf = [(column, columns.take(column)) for column in passed]
    time = _event_time(node, reading)
    timed = None
    if time is not None and time.delay_ms is not None:
        timed = columns.take(time), time.delay_ms
    stream = reading.stream(node.child, columns, timed)
    made = stream.dropDuplicatesWithinWatermark(names) if within else stream.dropDuplicates(names)
    relation = made.relation
    assert isinstance(relation, Deduplication)
    return Made(relation, tuple(leaf), None)


def _event_time(node: Node, reading: Reading) -> Expression | None:
    """By which rows are late. Where nothing needs the column, Spark's optimizer takes it away, and no row is late."""
    keys = {key.id for key in node.compared()}
    same = [each for each in reading.plan.optimized(reading.spark).walk() if each.kind == node.kind]
    optimized = next(each for each in same if {key.id for key in each.compared()} == keys)
    kept = {column.id for column in optimized.child.output}
    return next((each for each in node.child.output if each.delay_ms is not None and each.id in kept), None)
