"""Which operators can record their state accesses one by one, as a store with an entry a key and window sees them.

Of others it is not settled what a single access would be. Plain data.
"""

from __future__ import annotations

from tailrace.operators.aggregate.pattern import Pattern, WindowKind
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.join.spec import JoinKind, JoinSpec
from tailrace.operators.spec import OperatorSpec

_CAN = (
    "aggregates over all time (without a ttl), over tumbling and sliding windows (those of whole groups in append "
    "mode) and window joins can be recorded"
)


def why_not_recordable(spec: OperatorSpec) -> str | None:
    """Why accesses of this operator cannot be recorded, and of which they can; None where they can."""
    match spec:
        case JoinSpec(kind=JoinKind.WINDOW):
            return None
        case AggregateSpec(ttl=None) if spec.window_kind in (
            WindowKind.GLOBAL,
            WindowKind.TUMBLING,
            WindowKind.SLIDING,
        ):
            # What keeps rows is read when a window closes; in update mode it would be read in every epoch.
            if spec.pattern is Pattern.RMW or (spec.window is not None and not spec.emit_changed):
                return None
    return f"accesses of {spec.name} cannot be recorded: {_CAN}"
