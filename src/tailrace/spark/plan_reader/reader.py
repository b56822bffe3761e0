"""From a plain streaming DataFrame to the relation that gives the same rows.

The plan is walked from the top to its last stateful node, whose reader makes an operator of it, over what the same walk
makes of the plan below. What lies above an operator becomes a ``SparkHop``, to the sink or to the next operator; what
lies below the first stays in the streaming plan that Spark runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tailrace.api.relations import Deduplication, SparkHop
from tailrace.api.stream import Stream
from tailrace.errors import AnalysisError
from tailrace.spark.expressions.columns import Columns, Texts
from tailrace.spark.expressions.plans import Node, Step, plan_of
from tailrace.spark.plan_reader.part_above import PartAbove
from tailrace.spark.plan_reader.pushed_filters import with_pushed_filters
from tailrace.spark.plan_reader.reading import Made, Reading, call_of, stateless, stream_of
from tailrace.spark.plan_reader.registry import READERS, is_stateful
from tailrace.spark.query.runtime import SparkRuntime


class NothingStateful(AnalysisError):
    """The plan has no operator, so that there is nothing for Tailrace to do."""


@dataclass(frozen=True)
class ReadPlan:
    """``unchanging``: its rows are final when they are given, so that the output modes do not differ."""

    relation: SparkHop
    unchanging: bool


def read_plan(frame: DataFrame) -> ReadPlan:
    """The query of a DataFrame; ``AnalysisError`` where Tailrace has no equal of it."""
    plan, texts = with_pushed_filters(plan_of(frame), frame.sparkSession), Texts()
    needed = frozenset(each.id for each in plan.output)
    try:
        made, part = _read(plan, Reading(frame.sparkSession, plan, needed, texts, 0, _source))
        label = f"{part.label}; {texts.legend()}"
        relation = SparkRuntime(frame.sparkSession).hop(made.relation, part, label)
    except AnalysisError as error:
        raise type(error)(texts.in_users_words(str(error))) from error
    return ReadPlan(relation, isinstance(made.relation, Deduplication))


def _read(plan: Node, reading: Reading) -> tuple[Made, PartAbove]:
    """The last operator of a plan, and what lies above it. ``reading.needed``: of the plan's columns."""
    node, steps = _last_operator(plan)
    read = READERS.get(node.kind)
    if read is None:
        raise AnalysisError(f"{call_of(node)}: Tailrace does not read it from a plain query")
    needed = reading.needed | {id_ for step in steps for each in step.node.expressions for id_ in each.references}
    made = read(node, Reading(reading.spark, plan, needed, reading.texts, reading.level, reading.source))
    if made.rest is not None:
        steps.insert(0, Step(node.where(made.rest), 0))
    numbers = {field.name: number for number, field in enumerate(made.relation.fields)}
    return made, PartAbove([(column, numbers[name]) for column, name in made.leaf], made.results, steps)


def _source(plan: Node, columns: Columns, reading: Reading) -> Stream:
    """The rows of a plan, in the columns that an operator reads of it."""
    if not any(is_stateful(node) for node in plan.walk()):
        return stream_of(columns.of(stateless(plan).frame(reading.spark)))
    below = Reading(reading.spark, plan, columns.references, reading.texts, reading.level + 1, _source)
    made, part = _read(plan, below)
    runtime = SparkRuntime(reading.spark)
    hop = runtime.hop(made.relation, lambda frame: columns.of(part(frame)), part.label)
    return Stream(hop, hop.fields, runtime, hop.event_time)


def _last_operator(plan: Node) -> tuple[Node, list[Step]]:
    """The last stateful node, and what lies above it from the lowest on."""
    steps: list[Step] = []
    node = plan
    while not is_stateful(node):
        streaming = [number for number, child in enumerate(node.children) if child.is_streaming]
        if not any(is_stateful(each) for each in node.walk()):
            raise NothingStateful("the query keeps no state")
        if len(streaming) > 1:
            raise AnalysisError(f"a {node.kind} behind operators: Tailrace does not read it from a plain query")
        steps.append(Step(node, streaming[0]))
        node = node.children[streaming[0]]
    return node, steps[::-1]
