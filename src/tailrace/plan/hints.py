"""Which operators of a chain can be told ahead what state they will ask for, and by which columns of the source. Pure.

An operator can where the columns of its key come from the source as they are: of the first one always, of later ones
where every operator before hands them through. Where its state lies in panes of event time, the same goes for the
column of that. Left out are operators without a key, since the state of one key is always in memory, and those where
more than a row's key and time says which record it will ask for: a user's own windows, duplicates that are forgotten.
"""

from __future__ import annotations

from tailrace.operators.aggregate.pattern import Pattern
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.operators.join.spec import JoinSpec
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.process.spec import ProcessSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.windows import Panes
from tailrace.plan.physical import PhysicalPlan
from tailrace.types import Field


def hint_specs(plan: PhysicalPlan) -> tuple[HintSpec | None, ...]:
    """By operator of the chain; None: nothing but its staged rows can tell."""
    found: list[HintSpec | None] = []
    operators = [stage.operator for stage in plan.stages]
    for number, operator in enumerate(operators):
        spec = _spec(operator, operators[0])
        carried = spec and all(_hands_through(before, by) for before in operators[:number] for by in spec.found_by)
        found.append(spec if carried else None)
    return tuple(found)


def _spec(operator: OperatorSpec, first: OperatorSpec) -> HintSpec | None:
    if not _found_by_row(operator) or isinstance(operator, JoinSpec):
        return None
    panes = _panes(operator)
    time = None if isinstance(first, JoinSpec) else first.time_column
    return HintSpec(
        operator=operator.name,
        keys=operator.keys,
        time=time if panes is None else operator.time_column,
        whole_keys=isinstance(operator, LookupSpec),
        shards=operator.shards,
        panes=panes,
    )


def _found_by_row(operator: OperatorSpec) -> bool:
    """Whether a row's key, or with panes its key and time, say which record it will ask for."""
    if operator.takes_window_start:
        return False  # rows bring their windows: the source does not know them
    match operator:
        case AggregateSpec():
            return bool(operator.keys) and operator.custom is None and operator.pattern is Pattern.RMW
        case DeduplicateSpec():
            return operator.memory is Memory.FOREVER
        case TopNSpec() | ProcessSpec() | LookupSpec():
            return bool(operator.keys)
    return False


def _panes(operator: OperatorSpec) -> Panes | None:
    """Those in which its records lie; None: a key has one record."""
    if isinstance(operator, AggregateSpec) and operator.session_gap is not None:
        return Panes(operator.session_gap)
    if isinstance(operator, AggregateSpec | TopNSpec) and operator.window is not None:
        return operator.window.panes
    return None


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
