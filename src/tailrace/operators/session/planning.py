"""Sessions in the plan of an aggregation."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.api.windows import DynamicSessionWindow, SessionWindow
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput
from tailrace.operators.aggregate.window_form import WindowForm, WindowStores
from tailrace.operators.pattern import Pattern, StoreChoice
from tailrace.operators.windows.dynamic_session import DynamicSessionSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.layout import Merge
from tailrace.types import Field


def _times(window: SessionWindow, time: Field | None, expires: bool) -> list[Accumulator]:
    """The first and the last event time of a record, by which sessions are put together."""
    assert time is not None, "sessions without event time"
    return [Accumulator(merge, AccumulatorInput.VALUE, time.name, time.type) for merge in (Merge.MIN, Merge.MAX)]


def _bounds(window: DynamicSessionWindow, time: Field | None, expires: bool) -> list[Accumulator]:
    """The first event time of a record and the latest end, by which sessions are put together."""
    assert time is not None, "sessions without event time"
    columns = ((Merge.MIN, time.name), (Merge.MAX, window.ends))
    return [Accumulator(merge, AccumulatorInput.VALUE, name, time.type) for merge, name in columns]


_REFUSED: Mapping[Pattern, str] = {
    Pattern.AAR: "AAR drops the rows of all keys at once when a window ends, and sessions end key by key",
}
_STORES = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and sessions end key by key: one record a key and pane as wide as the gap, "
        "changed in place; records that touch are merged, and go, when their session ends",
    ),
    holistic=StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and sessions end key by key: rows are appended by key and pane as "
        "wide as the gap, and those that will end next are read ahead, many together",
    ),
    others={Pattern.AUR: "every row is appended by key and pane and read when its session ends"},
    refused=_REFUSED,
)
_DYNAMIC_STORES = WindowStores(
    incremental=StoreChoice(
        Pattern.RMW,
        "the aggregates are incremental and sessions end key by key, each row after a gap of its own: one record for "
        "each part of a session, changed in place; parts that touch are merged, and go, when their session ends",
    ),
    holistic=StoreChoice(
        Pattern.AUR,
        "an aggregate needs every row of its group, and sessions end key by key, each row after a gap of its own: rows "
        "are appended by key and part of a session, and those that will end next are read ahead, many together",
    ),
    others={Pattern.AUR: "every row is appended by key and part of a session, and read when the session ends"},
    refused=_REFUSED,
)

SESSION = WindowForm(
    window=SessionWindow,
    spec=SessionWindowSpec,
    plan=lambda window, expires: SessionWindowSpec(window.gap),
    stores=lambda spec: _STORES,
    accumulators=_times,
)
DYNAMIC_SESSION = WindowForm(
    window=DynamicSessionWindow,
    spec=DynamicSessionSpec,
    plan=lambda window, expires: DynamicSessionSpec(window.ends),
    stores=lambda spec: _DYNAMIC_STORES,
    accumulators=_bounds,
)
