"""What the queries leave open: windows, filters, sizes. One object for oracles and engines, so they agree."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tailrace.errors import TailraceError


@dataclass(frozen=True)
class Params:
    window_ms: int = 10_000
    slide_ms: int = 5_000
    """Of the sliding windows of Q4 and Q5; half the window in the workloads that FlowKV ran."""
    gap_ms: int = 10_000
    """Two rows of a key are in one session if, and only if, less than this lies between them and their neighbours."""
    watermark_delay_ms: int = 0
    """How far behind the largest event time an engine's watermark stays: as far as events are out of order."""
    auction_life_ms: int = 60_000
    """No bid that counts comes longer before its auction's end: lets engines forget bids in Q4 and Q9.

    Bids may come before their auction opens, so that this is more than an auction's life. Oracles do not look at it.
    """
    auction_skip: int = 123
    category: int = 10
    side_rows: int = 10_000
    """Rows of the bounded table that Q13 joins with."""
    top: int = 10

    def __post_init__(self) -> None:
        for name in ("window_ms", "slide_ms", "gap_ms", "auction_skip", "side_rows", "top"):
            if getattr(self, name) < 1:
                raise TailraceError(f"NEXMark: {name} is {getattr(self, name)}; it must be at least 1")
        if self.slide_ms > self.window_ms:
            raise TailraceError(
                f"NEXMark: windows of {self.window_ms} ms every {self.slide_ms} ms leave gaps between them"
            )


def side_table(params: Params) -> pa.Table:
    """Q13's bounded table: each key with itself as text."""
    keys = pa.array(range(params.side_rows), pa.int64())
    return pa.table({"key": keys, "value": keys.cast(pa.string())})
