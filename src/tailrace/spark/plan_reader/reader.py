"""From a plain streaming DataFrame to the relation that gives the same rows.

The plan is walked from the top to its last stateful node, whose reader makes an operator of it. What lies above becomes
a ``SparkHop``; what lies below stays in the streaming plan that Spark runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tailrace.api.relations import Deduplication, SparkHop
from tailrace.errors import AnalysisError
from tailrace.spark.plan_reader.catalyst import Node, Step, plan_of
from tailrace.spark.plan_reader.columns import Texts
from tailrace.spark.plan_reader.part_above import PartAbove
from tailrace.spark.plan_reader.reading import Made, Reading, call_of
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
    plan = plan_of(frame)
    node, steps = _last_operator(plan)
    read = READERS.get(node.kind)
    if read is None:
        raise AnalysisError(f"{call_of(node)}: Tailrace does not read it from a plain query")
    needed = {each.id for each in plan.output}
    needed |= {id_ for step in steps for each in step.node.expressions for id_ in each.references}
    texts = Texts()
    try:
        made = read(node, Reading(frame.sparkSession, plan, frozenset(needed), texts))
        if made.rest is not None:
            steps.insert(0, Step(node.where(made.rest), 0))
        relation = _with_part_above(made, steps, SparkRuntime(frame.sparkSession), texts)
    except AnalysisError as error:
        raise AnalysisError(texts.in_users_words(str(error))) from error
    return ReadPlan(relation, isinstance(made.relation, Deduplication))


def _with_part_above(made: Made, steps: list[Step], runtime: SparkRuntime, texts: Texts) -> SparkHop:
    numbers = {field.name: number for number, field in enumerate(made.relation.fields)}
    leaf = [(column, numbers[name]) for column, name in made.leaf]
    part = PartAbove(leaf, made.results, steps)
    return runtime.hop(made.relation, part, f"{part.label}; {texts.legend()}")


def _last_operator(plan: Node) -> tuple[Node, list[Step]]:
    """The last stateful node, and what lies above it from the lowest on."""
    steps: list[Step] = []
    node = plan
    while not is_stateful(node):
        streaming = [number for number, child in enumerate(node.children) if child.is_streaming]
        if not streaming:
            raise NothingStateful("the query keeps no state")
        if len(streaming) > 1:
            if any(is_stateful(each) for each in node.walk()):
                raise AnalysisError(f"a {node.kind} behind operators: Tailrace does not read it from a plain query")
            raise NothingStateful("the query keeps no state")
        steps.append(Step(node, streaming[0]))
        node = node.children[streaming[0]]
    return node, steps[::-1]
