"""From a plain streaming DataFrame to the relation that gives the same rows.

The plan is walked from the top to its last stateful nodes, whose readers make operators of them, over what the same
walk makes of the plans below. What lies above operators becomes a ``SparkHop``, to the sink or to the next operator;
what lies below the first ones stays in the streaming plan that Spark runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from pyspark.sql import DataFrame

from tailrace.api.relations import Deduplication, OutputMode, PassThrough, SparkHop
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.columns import Columns, Texts
from tailrace.spark.expressions.places import at_place, placed
from tailrace.spark.expressions.plans import Above, Leaf, Node, plan_of
from tailrace.spark.plan_reader.part_above import PartAbove
from tailrace.spark.plan_reader.pushed_filters import with_pushed_filters
from tailrace.spark.plan_reader.reading import Made, Name, Reading, call_of, stateless, stream_of
from tailrace.spark.plan_reader.registry import READERS, goes_by_watermark, is_stateful
from tailrace.spark.query.runtime import SparkRuntime
from tailrace.spark.sources.hops import hop_over
from tailrace.spark.sources.schema import fields_of


@dataclass(frozen=True)
class ReadPlan:
    """``unchanging``: its rows are final when they are given, so that the output modes do not differ.

    ``by_watermark``: only Spark's own rule for the watermark gives Spark's rows.
    """

    relation: SparkHop | PassThrough
    unchanging: bool
    by_watermark: bool


def read_plan(frame: DataFrame, mode: OutputMode = OutputMode.APPEND) -> ReadPlan:
    """The query of a DataFrame; ``AnalysisError`` where Tailrace has no equal of it."""
    spark, texts = frame.sparkSession, Texts()
    plan = plan_of(frame)
    if not _is_of_operators(plan):
        stateless(plan)
        return ReadPlan(PassThrough(frame, fields_of(frame.schema)), unchanging=True, by_watermark=False)
    plan = with_pushed_filters(plan, spark)
    needed = frozenset(each.id for each in plan.output)
    try:
        reading = Reading(spark, plan, needed, texts, count(), _source, [], mode is OutputMode.APPEND)
        # In complete mode the rows of an epoch are all rows.
        made, part = _read(plan, reading, mode is OutputMode.COMPLETE)
        _check_watermarks(reading.timed)
        relation = hop_over(spark, [each.relation for each in made], part, f"{part.label}; {texts.legend()}")
    except AnalysisError as error:
        found = at_place(error, texts.place_in)
        raise type(error)(texts.in_users_words(str(found))) from error
    relation = replace(relation, names=texts.names)
    unchanging = all(isinstance(each.relation, Deduplication) for each in made)
    return ReadPlan(relation, unchanging, any(goes_by_watermark(each) for each in plan.walk()))


def _read(plan: Node, reading: Reading, complete: bool = False) -> tuple[list[Made], PartAbove]:
    """The last operators of a plan, and what lies above them. ``reading.needed``: of the plan's columns."""
    of_operators = replace(reading, plan=plan, needed=reading.needed | frozenset(_read_above(plan)))
    made: list[Made] = []

    def place(node: Node) -> Above | Leaf:
        if not is_stateful(node):
            _check_operators(node)
            return Above(node, {number: place(child) for number, child in _streaming(node)})
        read = READERS.get(node.kind)
        if read is None:
            with placed(node):
                raise AnalysisError(f"{call_of(node)}: Tailrace does not read it from a plain query")
        try:
            one = read(node, replace(of_operators, number=next(reading.numbers)))
        except AnalysisError as error:
            raise at_place(at_place(error, reading.texts.place_in), lambda _: node.place) from error
        made.append(one)
        numbers = {field.name: number for number, field in enumerate(one.relation.fields)}
        leaf = Leaf([(column, _number(numbers, name)) for column, name in one.leaf], one.results)
        return leaf if one.rest is None else Above(node.where(one.rest), {0: leaf})

    root = place(plan)
    return made, PartAbove(root, complete)


def _number(numbers: Mapping[str, int], name: Name) -> int | tuple[int, int]:
    return numbers[name] if isinstance(name, str) else (numbers[name[0]], numbers[name[1]])


def _source(plan: Node, columns: Columns, reading: Reading) -> Stream:
    """The rows of a plan, in the columns that an operator reads of it."""
    if not _is_of_operators(plan):
        return stream_of(columns.of(stateless(plan).frame(reading.spark)))
    made, part = _read(plan, replace(reading, needed=columns.references))
    relations = [each.relation for each in made]
    hop = hop_over(reading.spark, relations, lambda *frames: columns.of(part(*frames)), part.label, kept=True)
    return Stream(hop, hop.fields, SparkRuntime(reading.spark), hop.event_time)


def _is_of_operators(plan: Node) -> bool:
    return any(is_stateful(node) for node in plan.walk())


def _streaming(node: Node) -> list[tuple[int, Node]]:
    return [(number, child) for number, child in enumerate(node.children) if child.is_streaming]


def _check_operators(node: Node) -> None:
    if not all(_is_of_operators(child) for _, child in _streaming(node)):
        raise AnalysisError(
            f"a {node.kind} of an operator's rows and of rows that none has seen: Tailrace gives operators' alone"
        )


def _check_watermarks(timed: Sequence[bool]) -> None:
    if any(timed) and not all(timed):
        raise AnalysisError(
            f"{sum(timed)} of {len(timed)} streams have a watermark that an operator goes by, and Tailrace has one "
            f"event time for all operators of a query: call withWatermark on every stream, or write two queries"
        )


def _read_above(node: Node) -> Iterator[int]:
    """The columns that nodes above the last operators read."""
    if is_stateful(node):
        return
    for each in node.expressions:
        yield from each.references
    for _, child in _streaming(node):
        if node.kind == "Union":  # by their places
            yield from (column.id for column in child.output)
        yield from _read_above(child)
