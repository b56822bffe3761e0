"""Functions of whole groups over sliding windows, on the append store for unaligned windows (AUR): for whoever asks.

Invariants
- A row is appended once, to the list of its key and pane, however many windows overlap. Lists are read for each window
  that has them, once for all that are read together, and go when the last one has closed: none is removed by itself.
- Which lists a window of a key has, and how long they are, the records of ``row_index`` say, in memory or on disk.
- Append: windows with an end in (late_before, watermark]. Update: windows of keys that the epoch appended to; a user's
  function gets whole windows, every key of them. Complete: all windows.
- A group's rows come pane by pane, each in order of arrival: what is made of them does not depend on where they lay.

Threads: one call at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.finish import window_struct
from tailrace.operators.aggregate.holistic.unaligned_windows import WindowLists
from tailrace.operators.ingest.frame import Frame, shard_order
from tailrace.operators.rows.row_index import pieces
from tailrace.state.layout import HASH, PANE
from tailrace.state.read_modify_write import probes
from tailrace.state.read_modify_write.scan import scan_keys
from tailrace.state.rows.arrange import row_numbers
from tailrace.state.rows.groups import group_by_key
from tailrace.state.rows.rows import Rows, concat_rows

_FOREVER = 2**63 - 1
_RECORDS_MAX = 1 << 18
"""Records of lists that are looked at together: bounds the memory for it."""


@dataclass(frozen=True)
class Members:
    """Lists of windows: entry ``i`` is the record ``records[at[i]]``, in the window of its key that starts there.

    Entries of one key and window follow each other, by pane.
    """

    records: Rows
    at: np.ndarray
    keys: np.ndarray  # the number of each entry's key
    starts: np.ndarray

    @property
    def firsts(self) -> np.ndarray:
        """The first entry of each key and window."""
        new = np.append(True, (np.diff(self.keys) != 0) | (np.diff(self.starts) != 0))
        return np.flatnonzero(new[: len(self.at)])


class SlidingLists(WindowLists):
    def _triggers(self, frame: Frame, epoch: int) -> np.ndarray:
        """The end of the first window that has a row's pane. From then on a list is among those that are read ahead."""
        window = self._window
        assert window is not None
        steps = (frame.rows[:, PANE] - window.size - window.offset) // window.slide + 1
        ends: np.ndarray = window.offset + steps * window.slide + window.length
        return ends

    def _emitted(self, epoch: int, late_before: int, watermark: int, closing: bool) -> Iterator[pa.RecordBatch]:
        window = self._window
        assert window is not None
        if self.spec.complete:
            found = self._in_windows(MIN_MICROS, _FOREVER)
        elif not self.spec.emit_changed:
            found = self._in_windows(late_before, watermark) if closing and watermark > late_before else iter(())
        elif self._function is None:
            found = self._changed_keys(late_before)
        else:
            changed = [records.words[:, PANE] for records in self._index.changed()]
            panes = np.unique(np.concatenate([np.empty(0, np.int64), *changed]))
            found = self._in_windows(late_before, _FOREVER, np.unique(window.holding(panes, late_before)[1]))
        for members in found:
            if self.on_close is not None and not self.spec.emit_changed:
                firsts = members.firsts
                self.on_close(members.records.words[members.at[firsts], HASH], members.starts[firsts])
            yield from self._made(epoch, members)

    # Which lists -----------------------------------------------------------------------------------------------------

    def _in_windows(self, ends_after: int, ends_by: int, starts: np.ndarray | None = None) -> Iterator[Members]:
        """All keys of windows with an end in (ends_after, ends_by], or of those of them that start at ``starts``."""
        every = self._records(ends_after, ends_by, starts)
        if self._function is not None:
            # It gets a window's keys together: window by window, and in an order that depends on keys alone.
            every = iter([concat_rows(list(every), self._index.layout)])
        for records in every:
            grouped, offsets = group_by_key(records, self._index.layout)
            numbers = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            at, windows = self._windows_with(grouped.words[:, PANE], ends_after, ends_by, starts)
            yield self._ordered(grouped, at, numbers[at], windows)

    def _windows_with(
        self, panes: np.ndarray, ends_after: int, ends_by: int, starts: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        assert self._window is not None
        at, windows = self._window.holding(panes, ends_after, ends_by)
        if starts is None:
            return at, windows
        chosen = np.isin(windows, starts)
        return at[chosen], windows[chosen]

    def _records(self, ends_after: int, ends_by: int, starts: np.ndarray | None) -> Iterator[Rows]:
        """Records of lists in such windows, in pieces that hold all of their keys: in memory and on disk."""
        store = self._index.store
        held: list[Rows] = []
        count = 0

        def chosen(panes: np.ndarray) -> np.ndarray:
            return np.unique(self._windows_with(panes, ends_after, ends_by, starts)[0])

        for rows in scan_keys(store, chosen):
            held.append(rows)
            count += len(rows)
            if count >= _RECORDS_MAX:
                yield concat_rows(held, store.layout)
                held, count = [], 0
        if held:
            yield concat_rows(held, store.layout)

    def _changed_keys(self, late_before: int) -> Iterator[Members]:
        """Windows of keys that the newest epoch appended to, some at a time."""
        window, layout = self._window, self._index.layout
        assert window is not None
        changed, offsets = group_by_key(concat_rows(list(self._index.changed()), layout), layout)
        numbers = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        at, starts = window.holding(changed.words[:, PANE], late_before)
        pairs = np.unique(np.stack([numbers[at], starts], axis=1), axis=0)
        keys = Rows(changed.words[offsets[:-1]], changed.heap)
        panes = window.pane_offsets
        step = max(1, _RECORDS_MAX // len(panes))
        for low in range(0, len(pairs), step):
            yield self._of_pairs(keys, pairs[low : low + step], panes)

    def _of_pairs(self, keys: Rows, pairs: np.ndarray, panes: np.ndarray) -> Members:
        """The lists of these (key, start of a window), in panes that start so long after."""
        spans = np.repeat(pairs, len(panes), axis=0)
        spans[:, 1] += np.tile(panes, len(pairs))
        lists, numbers = np.unique(spans, axis=0, return_inverse=True)
        words = keys.words[lists[:, 0]]
        words[:, PANE] = lists[:, 1]
        order, bounds = shard_order(words, self.spec.shards)
        found = probes.current(self._index.store, Rows(words[order], keys.heap), bounds, keep=True)
        records = concat_rows(found.parts, self._index.layout)
        place = np.full(len(lists), -1)
        place[order[found.numbers]] = np.arange(len(records))
        at = place[numbers.reshape(-1)]
        whose = np.repeat(pairs, len(panes), axis=0)[at >= 0]
        return self._ordered(records, at[at >= 0], whose[:, 0], whose[:, 1])

    def _ordered(self, records: Rows, at: np.ndarray, keys: np.ndarray, starts: np.ndarray) -> Members:
        by: tuple[np.ndarray, ...] = (records.words[at, PANE], starts, keys)
        if self._function is not None:
            hashes = records.words[at, HASH]
            by = (records.words[at, PANE], keys, hashes, hashes % self.spec.shards, starts)
        order = np.lexsort(by)
        return Members(records, at[order], keys[order], starts[order])

    # Reading them ----------------------------------------------------------------------------------------------------

    def _made(self, epoch: int, members: Members) -> Iterator[pa.RecordBatch]:
        if not len(members.at):
            return
        counts = self._index.counts(members.records)[members.at]
        firsts = members.firsts
        starts, sizes = members.starts[firsts], np.add.reduceat(counts, firsts)
        edges = None if self._function is None else np.flatnonzero(np.diff(starts)) + 1
        ends = np.append(firsts, len(members.at))
        for part in pieces(sizes, edges):
            lists, numbers = np.unique(members.at[ends[part.start] : ends[part.stop]], return_inverse=True)
            some = Rows(members.records.words[lists], members.records.heap)
            rows, places = self._store.read(self._index.targets(some), remove=False)
            every = row_numbers(places[:-1][numbers], places[1:][numbers])
            offsets = np.concatenate([[0], np.cumsum(sizes[part])]).astype(np.int64)
            groups = self._groups(Rows(rows.words[every], rows.heap), offsets)
            windows = window_struct(starts[part], self.spec)
            if self._function is None:
                yield self._results.batch(groups, windows)
            else:
                lasts = 0 if self._window is None else self._window.length
                yield from self._function.by_window(groups, starts[part], starts[part] + lasts, epoch)
