"""What NEXMark's bids ask of a store, epoch by epoch: rows that come, and lists or windows that are read. Pure.

Made ahead from the events alone, so that measuring a store measures nothing else, and so that what it hands out can be
compared with what it must. Three patterns, after FlowKV:

- ``Sessions``: each bidder's bids (Q11-Median, Q7-Session). A list is the bids of a bidder in one pane, panes being as
  wide as the gap, as Tailrace keeps sessions; a session is read when the watermark has passed its last bid and the gap.
- ``Windows``: bids in tumbling windows, each read whole when the watermark has reached its end (Q7; and Q18's keys, one
  record for each bidder and auction, for a store of records).

Events come in order, so the watermark is the latest of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.generator import bids as make_bids

_COLUMNS = ("bidder", "auction", "price", "dateTime")
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Bids:
    """All bids in order, as columns; those of epoch ``e`` are rows ``edges[e]`` to ``edges[e + 1]``."""

    table: pa.RecordBatch
    edges: np.ndarray

    @property
    def epochs(self) -> int:
        return len(self.edges) - 1

    def of(self, epoch: int) -> pa.RecordBatch:
        return self.table.slice(self.edges[epoch], self.edges[epoch + 1] - self.edges[epoch])

    def column(self, name: str) -> np.ndarray:
        """Times are in microseconds."""
        column = self.table.column(name)
        return np.asarray(column.cast(pa.int64()) if name == "dateTime" else column)

    @property
    def watermarks(self) -> np.ndarray:
        """After each epoch."""
        marks: np.ndarray = self.column("dateTime")[self.edges[1:] - 1]
        return marks


def bids(events: int, a_batch: int, rate: int, seed: int) -> Bids:
    """Those of so many events, ``rate`` of which make a second of event time.

    A bidder is among the active ones for five seconds: with 10,000 events a second, the generator's own thousand.
    """
    config = Config(seed=seed, first_event_rate=rate, next_event_rate=rate, num_active_people=max(1, rate // 10))
    columns = []
    edges = [0]
    for begin in range(0, events, a_batch):
        made = make_bids(config, begin, min(begin + a_batch, events), _COLUMNS)
        columns.append(made.set_column(3, "dateTime", made["dateTime"].cast(_TIME)))
        edges.append(edges[-1] + made.num_rows)
    (table,) = pa.concat_tables(columns).combine_chunks().to_batches()
    return Bids(table, np.array(edges))


@dataclass(frozen=True)
class Sessions:
    """Sessions of each bidder. Lists are in the order in which they are read, session by session."""

    bids: Bids
    panes: np.ndarray
    """Of each bid, the pane of its list."""
    expected: np.ndarray
    """Of each bid, when its session would end if no other came."""
    list_keys: pa.RecordBatch
    list_panes: np.ndarray
    session_edges: np.ndarray
    """Lists ``session_edges[s]`` to ``session_edges[s + 1]`` are those of session ``s``."""
    ended: np.ndarray
    """Sessions ``ended[e]`` to ``ended[e + 1]`` end in epoch ``e``."""
    session_of: np.ndarray
    """Of each bid, the number of its session."""

    def lists_of(self, epoch: int) -> tuple[int, int]:
        first, end = self.session_edges[self.ended[epoch : epoch + 2]]
        return int(first), int(end)

    def sessions_of(self, epoch: int) -> Iterator[tuple[int, int]]:
        """The lists of each session that ends in the epoch."""
        edges = self.session_edges[self.ended[epoch] : self.ended[epoch + 1] + 1].tolist()
        return pairwise(edges)

    def rows_read(self, first_epoch: int, end_epoch: int) -> pa.RecordBatch:
        """The bids of all sessions that end in these epochs."""
        low, high = self.ended[first_epoch], self.ended[end_epoch]
        return self.bids.table.take(np.flatnonzero((self.session_of >= low) & (self.session_of < high)))


def sessions(of: Bids, gap_s: float) -> Sessions:
    gap = int(gap_s * 1e6)
    bidder, time = of.column("bidder"), of.column("dateTime")
    panes = time // gap * gap
    order = np.lexsort((time, bidder))
    sorted_bidder, sorted_time, sorted_panes = bidder[order], time[order], panes[order]
    same = sorted_bidder[1:] == sorted_bidder[:-1]
    begins = np.append(True, ~same | (np.diff(sorted_time) > gap))  # a session
    starts = np.flatnonzero(begins)
    ends = sorted_time[np.append(starts[1:], len(order)) - 1] + gap
    by_end = np.lexsort((sorted_bidder[starts], ends))
    rank = np.empty(len(starts), np.int64)
    rank[by_end] = np.arange(len(starts))
    session = rank[np.cumsum(begins) - 1]  # of the sorted bids
    first_of_list = np.flatnonzero(begins | np.append(True, np.diff(sorted_panes) != 0))
    lists = first_of_list[np.lexsort((sorted_panes[first_of_list], session[first_of_list]))]
    edges = np.searchsorted(session[lists], np.arange(len(starts) + 1))
    session_of = np.empty(len(order), np.int64)
    session_of[order] = session
    return Sessions(
        of,
        panes,
        time + gap,
        pa.record_batch({"bidder": pa.array(sorted_bidder[lists])}),
        sorted_panes[lists],
        edges,
        np.searchsorted(ends[by_end], np.append(-1, of.watermarks), side="right"),
        session_of,
    )


@dataclass(frozen=True)
class Windows:
    """Tumbling windows."""

    bids: Bids
    starts: np.ndarray
    """Of each bid, where its window begins."""
    size: int

    def closed_by(self, epoch: int) -> list[int]:
        """The windows that end by the watermark of this epoch, and not by that of the one before."""
        before, now = (int(mark) for mark in np.append(self.starts[0] - 1, self.bids.watermarks)[epoch : epoch + 2])
        first = max(before // self.size * self.size, int(self.starts[0]))
        return [start for start in range(first, now, self.size) if before < start + self.size <= now]

    def rows_read(self, first_epoch: int, end_epoch: int) -> pa.RecordBatch:
        """The bids of all windows that close in these epochs."""
        return self.bids.table.take(self._read(first_epoch, end_epoch))

    def starts_read(self, first_epoch: int, end_epoch: int) -> np.ndarray:
        """Their windows."""
        starts: np.ndarray = self.starts[self._read(first_epoch, end_epoch)]
        return starts

    def _read(self, first_epoch: int, end_epoch: int) -> np.ndarray:
        closed = [start for epoch in range(first_epoch, end_epoch) for start in self.closed_by(epoch)]
        return np.flatnonzero(np.isin(self.starts, closed))


def windows(of: Bids, size_s: float) -> Windows:
    size = int(size_s * 1e6)
    return Windows(of, of.column("dateTime") // size * size, size)
