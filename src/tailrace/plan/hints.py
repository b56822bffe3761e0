"""Which operators of a chain can be given prefetch hints, and by which columns of the source. Pure.

An operator can where the columns of its key come from the source as they are: of the first one always, of later ones
where every operator before passes them through. Where its state lies in panes of event time, the same goes for the
column of that. Left out are operators without a key, since the state of one key is always in memory, and those where
more than a row's key and time says which record it will need (``OperatorSpec.hint_target``).
"""

from __future__ import annotations

from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.operators.spec import OperatorSpec
from tailrace.plan.physical import PhysicalPlan
from tailrace.types import Field


def hint_specs(plan: PhysicalPlan) -> tuple[HintSpec | None, ...]:
    """By operator of the chain; None: only its staged rows say which state it needs."""
    found: list[HintSpec | None] = []
    # Rows of two united streams have their time in a column that neither of them has.
    time = plan.operator.time_column if len(plan.inputs) == 1 else None
    operators = [stage.operator for stage in plan.stages]
    for number, operator in enumerate(operators):
        spec = _spec(operator, time)
        carried = spec and all(before.passes_through(by) for before in operators[:number] for by in spec.found_by)
        found.append(spec if carried else None)
    return tuple(found)


def _spec(operator: OperatorSpec, time: Field | None) -> HintSpec | None:
    target = operator.hint_target()
    if target is None:
        return None
    return HintSpec(
        operator=operator.name,
        keys=operator.keys,
        time=time if target.panes is None else operator.time_column,
        whole_keys=target.whole_keys,
        shards=operator.shards,
        panes=target.panes,
    )
