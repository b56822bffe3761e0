"""The best rows of each group to the operator that a state server runs for it.

Of windows that end for all keys at once, and over all time, only the best rows so far are kept. Of others, whose rows
must all be there until they end, all are, as for an aggregate of whole groups, and the best are chosen then.
"""

from __future__ import annotations

from tailrace.api.relations import OutputMode, Ranking
from tailrace.api.windows import CountWindow, CustomWindow, Window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.planning.ttl import plan_ttl
from tailrace.operators.planning.windows import plan_time_window, plan_window
from tailrace.operators.spec import VALUES_MAX
from tailrace.operators.timers.ttl import Clock
from tailrace.operators.top_n.best_spec import Best, Order
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.types import Field


def plan_ranking(stream: Ranking, output_mode: OutputMode, shards: int, name: str) -> TopNSpec | AggregateSpec:
    if stream.window is None or isinstance(stream.window, Window):
        return _kept_best(stream, stream.window, output_mode, shards, name)
    return _chosen_at_end(stream, output_mode, shards, name)


def _kept_best(stream: Ranking, window: Window | None, output_mode: OutputMode, shards: int, name: str) -> TopNSpec:
    # Of a window that is brought, all rows have the same time.
    rows = _kept_rows(stream, timed=window is None or window.lasts is None)
    ttl = plan_ttl(stream.state_ttl)
    expires = ttl is not None and ttl.clock is Clock.EVENT
    _check_width(len(stream.keys) + len(rows) + (ttl is not None))
    return TopNSpec(
        name=name,
        keys=stream.keys,
        rows=rows,
        shown=_shown(stream),
        order=_order(stream),
        n=stream.n,
        rank=stream.rank,
        window=None if window is None else plan_time_window(window),
        window_name="" if window is None else window.name,
        window_position=stream.window_position,
        time_column=stream.time_column,
        emit_changed=output_mode is OutputMode.UPDATE,
        # Without a window nothing ever closes and no row is late, whatever the watermark: as in an aggregation.
        watermarked=expires or (stream.watermark is not None and window is not None),
        shards=shards,
        ttl=ttl,
    )


def _chosen_at_end(stream: Ranking, output_mode: OutputMode, shards: int, name: str) -> AggregateSpec:
    window = stream.window
    assert window is not None
    by_count = isinstance(window, CountWindow)
    timed = isinstance(window, CountWindow) and window.event_time is not None
    rows = _kept_rows(stream, timed=True)
    # The windows themselves go by the event time, also where it is among the group columns.
    if stream.time_column is not None and stream.time_column not in rows:
        rows = (*rows, stream.time_column)
    _check_width(len(stream.keys) + len(rows) + isinstance(window, CustomWindow))
    ttl = plan_ttl(stream.state_ttl)
    expires = ttl is not None and ttl.clock is Clock.EVENT
    return AggregateSpec(
        name=name,
        keys=stream.keys,
        accumulators=(),
        outputs=(),
        window=plan_window(window, in_time=ttl is not None),
        window_name=window.name,
        window_position=stream.window_position,
        time_column=stream.time_column,
        emit_changed=output_mode is OutputMode.UPDATE,
        watermarked=expires or timed if by_count else stream.watermark is not None,
        ansi=False,
        shards=shards,
        rows=rows,
        ttl=ttl,
        best=Best(
            stream.n,
            _order(stream),
            _shown(stream),
            stream.rank,
            window.event_time if isinstance(window, CountWindow) else None,
        ),
    )


def _shown(stream: Ranking) -> tuple[str, ...]:
    return tuple(field.name for field in stream.columns)


def _order(stream: Ranking) -> tuple[Order, ...]:
    return tuple(Order(column, ascending) for column, ascending in stream.order)


def _check_width(width: int) -> None:
    if width > VALUES_MAX:
        raise AnalysisError(
            f"topN: {width} columns are kept of a row, and at most {VALUES_MAX} can be: name those that you need with "
            f"columns=[...]"
        )


def _kept_rows(stream: Ranking, *, timed: bool) -> tuple[Field, ...]:
    """What is shown, what rows are ordered by, and the event time, which breaks ties."""
    rows = dict.fromkeys([*stream.columns, *(stream.field(column) for column, _ in stream.order)])
    if stream.time_column is not None and stream.time_column not in stream.keys and timed:
        rows[stream.time_column] = None
    return tuple(rows)
