"""The best rows of each group to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.relations import OutputMode, Ranking
from tailrace.api.windows import CountWindow, CustomWindow, DynamicSessionWindow, Window
from tailrace.errors import AnalysisError
from tailrace.operators.aggregate.window_forms import plan_window
from tailrace.operators.planning.ttl import plan_ttl
from tailrace.operators.planning.windows import closes_by_watermark
from tailrace.operators.spec import VALUES_MAX
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.types import Field


def plan_ranking(stream: Ranking, output_mode: OutputMode, shards: int, name: str) -> TopNSpec:
    window, ttl = stream.window, plan_ttl(stream.state_ttl)
    spec = TopNSpec(
        name=name,
        keys=stream.keys,
        rows=_kept_rows(stream),
        shown=tuple(field.name for field in stream.columns),
        order=tuple(Order(column, ascending) for column, ascending in stream.order),
        n=stream.n,
        rank=stream.rank,
        window=plan_window(window, expires=ttl is not None),
        window_name="" if window is None else window.name,
        window_position=stream.window_position,
        time_column=stream.time_column,
        emit_changed=output_mode is OutputMode.UPDATE,
        watermarked=closes_by_watermark(window, stream.watermark, stream.state_ttl),
        shards=shards,
        ttl=ttl,
        latest=window.event_time if isinstance(window, CountWindow) else None,
    )
    beside = isinstance(window, CustomWindow) if spec.keeps_rows else ttl is not None
    _check_width(len(spec.keys) + len(spec.rows) + beside)
    return spec


def _check_width(width: int) -> None:
    if width > VALUES_MAX:
        raise AnalysisError(
            f"topN: {width} columns are kept of a row, and at most {VALUES_MAX} can be: name those that you need with "
            f"columns=[...]"
        )


def _kept_rows(stream: Ranking) -> tuple[Field, ...]:
    """What is shown, what rows are ordered by, and the event time, which breaks ties."""
    rows = dict.fromkeys([*stream.columns, *(stream.field(column) for column, _ in stream.order)])
    time, window = stream.time_column, stream.window
    if time is None:
        return tuple(rows)
    if window is None or isinstance(window, Window):
        # A time among the group columns breaks no tie. Of a window that is brought, all rows have the same time.
        needed = time not in stream.keys and (window is None or window.lasts is None)
    else:
        needed = True  # windows that end key by key go by the event time of rows, wherever else it is
    if isinstance(window, DynamicSessionWindow):
        rows = dict.fromkeys([*rows, stream.field(window.ends)])
    return (*rows, time) if needed and time not in rows else tuple(rows)
