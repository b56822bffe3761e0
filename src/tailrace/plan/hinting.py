"""Which operators of a chain can be told ahead what state they will ask for, and by which columns of the source. Pure.

An operator can where the columns of its key come from the source as they are: of the first one always, of later ones
where every operator before hands them through. Left out are operators without a key, since the state of one key is
always in memory, and those whose state lies in panes of event time.
"""

from __future__ import annotations

from tailrace.operators.specs.aggregate import AggregateSpec
from tailrace.operators.specs.deduplicate import DeduplicateSpec, Memory
from tailrace.operators.specs.hint import HintSpec
from tailrace.operators.specs.join import JoinSpec
from tailrace.operators.specs.lookup import LookupSpec
from tailrace.operators.specs.operator import OperatorSpec
from tailrace.operators.specs.pattern import WindowKind
from tailrace.operators.specs.process import ProcessSpec
from tailrace.operators.specs.top_n import TopNSpec
from tailrace.plan.physical import PhysicalPlan
from tailrace.types import Field


def hint_specs(plan: PhysicalPlan) -> tuple[HintSpec | None, ...]:
    """By operator of the chain; None: nothing but its staged rows can tell."""
    found: list[HintSpec | None] = []
    operators = [stage.operator for stage in plan.stages]
    for number, operator in enumerate(operators):
        carried = all(_hands_through(before, key) for before in operators[:number] for key in operator.keys)
        found.append(_spec(operator, operators[0]) if carried and _by_key(operator) else None)
    return tuple(found)


def _spec(operator: OperatorSpec, first: OperatorSpec) -> HintSpec:
    return HintSpec(
        operator=operator.name,
        keys=operator.keys,
        time=None if isinstance(first, JoinSpec) else first.time_column,
        whole_keys=isinstance(operator, LookupSpec),
        shards=operator.shards,
    )


def _by_key(operator: OperatorSpec) -> bool:
    """Whether a key's state is one piece that its hash finds."""
    match operator:
        case AggregateSpec():
            return bool(operator.keys) and operator.window_kind is WindowKind.GLOBAL
        case DeduplicateSpec():
            return operator.memory is Memory.FOREVER
        case TopNSpec():
            return bool(operator.keys) and operator.window is None
        case ProcessSpec() | LookupSpec():
            return bool(operator.keys)
    return False


def _hands_through(operator: OperatorSpec, column: Field) -> bool:
    """Whether rows that the operator emits have in this column what the rows they are made of had there."""
    match operator:
        case AggregateSpec():
            return column in operator.keys
        case DeduplicateSpec():
            return column in operator.columns
        case TopNSpec():
            return column in operator.keys or (column in operator.rows and column in operator.emits)
        case LookupSpec():
            return column in operator.keys or column in operator.rows
    return False
