"""The best rows of each group to the operator that a state server runs for it."""

from __future__ import annotations

from tailrace.api.relations import OutputMode, Ranking
from tailrace.errors import AnalysisError
from tailrace.operators.specs.operator import VALUES_MAX
from tailrace.operators.specs.top_n import Order, TopNSpec
from tailrace.operators.specs.ttl import Clock
from tailrace.operators.specs.window import WindowSpec
from tailrace.plan.process import plan_ttl
from tailrace.types import Field


def plan_ranking(stream: Ranking, output_mode: OutputMode, shards: int, name: str) -> TopNSpec:
    window = stream.window
    rows = _kept_rows(stream)
    ttl = plan_ttl(stream.state_ttl)
    expires = ttl is not None and ttl.clock is Clock.EVENT
    width = len(stream.keys) + len(rows) + (stream.state_ttl is not None)
    if width > VALUES_MAX:
        raise AnalysisError(
            f"topN: {width} columns are kept of a row, and at most {VALUES_MAX} can be: name those that you need with "
            f"columns=[...]"
        )
    return TopNSpec(
        name=name,
        keys=stream.keys,
        rows=rows,
        shown=tuple(field.name for field in stream.columns),
        order=tuple(Order(column, ascending) for column, ascending in stream.order),
        n=stream.n,
        rank=stream.rank,
        window=None if window is None else WindowSpec(window.size, window.slide, window.offset, window.lasts),
        window_name="" if window is None else window.name,
        window_position=stream.window_position,
        time_column=stream.time_column,
        emit_changed=output_mode is OutputMode.UPDATE,
        # Without a window nothing ever closes and no row is late, whatever the watermark: as in an aggregation.
        watermarked=expires or (stream.watermark is not None and window is not None),
        shards=shards,
        ttl=ttl,
    )


def _kept_rows(stream: Ranking) -> tuple[Field, ...]:
    """What is shown, what rows are ordered by, and the event time, which tells ties apart."""
    rows = dict.fromkeys([*stream.columns, *(stream.field(column) for column, _ in stream.order)])
    same_time = stream.window is not None and stream.window.lasts is not None  # of all rows of a window that is brought
    if stream.time_column is not None and stream.time_column not in stream.keys and not same_time:
        rows[stream.time_column] = None
    return tuple(rows)
