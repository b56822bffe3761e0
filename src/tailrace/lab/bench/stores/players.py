"""Stores at play: each takes what a trace brings, epoch by epoch, and hands out what the trace asks for.

A feed holds what some epochs bring, packed for a store; players with equal stores share one. Single-threaded.
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.lab.bench.stores.traces import Sessions, Windows
from tailrace.testing.bench.stores import (
    AppendAligned,
    AppendUnaligned,
    Lists,
    Prepared,
    ReadModifyWrite,
    Taken,
    table_of,
)

SESSION_COLUMNS = ["bidder", "price", "dateTime"]
RECORD_COLUMNS = ["bidder", "auction", "price"]
AnyStore = AppendUnaligned | AppendAligned | ReadModifyWrite


class WrongAnswerError(TailraceError):
    """A store has handed out other rows than it was given: a mistake of ours."""


class Feed(Protocol):
    def load(self, first: int, end: int) -> None:
        """Make these epochs ready; earlier ones are gone."""

    def rows(self, epoch: int) -> int:
        """How many it brings."""

    def expected(self) -> pa.Table:
        """All that the loaded epochs must read, sorted by every column."""


class Player(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def feed(self) -> Feed: ...

    @property
    def store(self) -> AnyStore: ...

    def play(self, epoch: int) -> list[Taken]:
        """Give the store what the epoch brings, and read what ends in it."""


def check(player: Player, taken: list[Taken], expected: pa.Table) -> None:
    found = table_of(taken).select(expected.column_names) if taken else expected.slice(0, 0)
    if not _sorted(found).equals(expected):
        raise WrongAnswerError(
            f"{player.name}: the store has handed out {found.num_rows:,} rows that are not the {expected.num_rows:,} "
            "it was given for the same sessions or windows: please report it with the options of this run"
        )


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


class SessionFeed:
    """Bids by bidder and session."""

    def __init__(self, trace: Sessions, store: AppendUnaligned) -> None:
        self._trace = trace
        self._store = store  # packs; nothing is appended to it
        self._first = self._end = 0
        self._ready: list[tuple[Prepared, Lists]] = []

    def load(self, first: int, end: int) -> None:
        if (self._first, self._end) == (first, end):
            return
        self._first, self._end = first, end
        self._ready = [self._made(epoch) for epoch in range(first, end)]

    def _made(self, epoch: int) -> tuple[Prepared, Lists]:
        trace = self._trace
        rows = slice(trace.bids.edges[epoch], trace.bids.edges[epoch + 1])
        batch = trace.bids.of(epoch).select(SESSION_COLUMNS)
        low, high = trace.lists_of(epoch)
        return (
            self._store.prepared(batch, trace.panes[rows], trace.expected[rows]),
            self._store.lists(trace.list_keys.slice(low, high - low), trace.list_panes[low:high]),
        )

    def rows(self, epoch: int) -> int:
        return len(self._ready[epoch - self._first][0])

    def expected(self) -> pa.Table:
        rows = self._trace.rows_read(self._first, self._end).select(SESSION_COLUMNS)
        return _sorted(pa.Table.from_batches([rows]))

    def epoch(self, epoch: int) -> tuple[Prepared, Lists, list[tuple[int, int]]]:
        """What comes, what is read, and which of that belongs to each session."""
        first, _ = self._trace.lists_of(epoch)
        parts = [(low - first, high - first) for low, high in self._trace.sessions_of(epoch)]
        return *self._ready[epoch - self._first], parts


class SessionPlayer:
    """The unaligned store. ``by_session``: a read for each session that ends, in place of one for all of an epoch."""

    def __init__(self, name: str, feed: SessionFeed, store: AppendUnaligned, *, by_session: bool = False) -> None:
        self.name = name
        self.feed = feed
        self.store = store
        self._by_session = by_session

    def play(self, epoch: int) -> list[Taken]:
        rows, lists, sessions = self.feed.epoch(epoch)
        self.store.append(rows)
        if self._by_session:
            return [self.store.take(lists[low:high]) for low, high in sessions]
        return [self.store.take(lists)] if len(lists) else []


class WindowFeed:
    """Bids by tumbling window, for a store of rows or for one of records."""

    def __init__(self, trace: Windows, store: AppendAligned | ReadModifyWrite) -> None:
        self._trace = trace
        self._store = store
        self._first = self._end = 0
        self._ready: list[Prepared] = []

    def load(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        self._ready = [self._made(epoch) for epoch in range(first, end)]

    def _made(self, epoch: int) -> Prepared:
        bids = self._trace.bids
        starts = self._trace.starts[bids.edges[epoch] : bids.edges[epoch + 1]]
        columns = RECORD_COLUMNS if isinstance(self._store, ReadModifyWrite) else SESSION_COLUMNS
        return self._store.prepared(bids.of(epoch).select(columns), starts)

    def rows(self, epoch: int) -> int:
        return len(self._ready[epoch - self._first])

    def expected(self) -> pa.Table:
        rows = pa.Table.from_batches([self._trace.rows_read(self._first, self._end)])
        if not isinstance(self._store, ReadModifyWrite):
            return _sorted(rows.select(SESSION_COLUMNS))
        starts = self._trace.starts_read(self._first, self._end)
        keyed = rows.append_column("window", pa.array(starts))
        sums = keyed.group_by(["window", "bidder", "auction"]).aggregate([([], "count_all"), ("price", "sum")])
        names = {"count_all": "count", "price_sum": "price"}
        return _sorted(sums.rename_columns([names.get(name, name) for name in sums.column_names]))

    def epoch(self, epoch: int) -> tuple[Prepared, list[int]]:
        """What comes, and the windows that are read."""
        return self._ready[epoch - self._first], self._trace.closed_by(epoch)


class WindowPlayer:
    """The aligned store, or that of records."""

    def __init__(self, name: str, feed: WindowFeed, store: AppendAligned | ReadModifyWrite) -> None:
        self.name = name
        self.feed = feed
        self.store = store

    def play(self, epoch: int) -> list[Taken]:
        rows, closed = self.feed.epoch(epoch)
        if isinstance(self.store, ReadModifyWrite):
            self.store.merge(rows)
        else:
            self.store.append(rows)
        return [one for start in closed for one in self.store.take_window(start)]
