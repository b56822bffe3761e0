"""The best rows of each key over all time, without event time or an end: the plainest top-n."""

from __future__ import annotations

from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.types import BIGINT, Field


def rolling_top(rows: tuple[Field, ...], order: Order, n: int, shards: int) -> TopNSpec:
    """By the key ``k``."""
    return TopNSpec(
        name="t",
        keys=(Field("k", BIGINT),),
        rows=rows,
        shown=tuple(row.name for row in rows),
        order=(order,),
        n=n,
        rank="rank",
        window=None,
        window_name="",
        window_position=0,
        time_column=None,
        emit_changed=True,
        watermarked=False,
        shards=shards,
    )
