"""Runs of the unaligned store: rows that lie list by list, a list being the rows of one (key, pane).

Invariants
- Lists are sorted by order key, then exact key; the rows of a list keep the order of arrival.
- A run is immutable but for ``gone``, one byte for each list: 0, or ``GONE`` for good, or the slot of an epoch that can
  be undone and that removed it. Undoing turns a slot to 0, forgetting turns it to ``GONE``.
- A segment is a run whose rows and index are mapped from disk (see ``list_segments``). In memory stay 5 bytes for each
  of its lists: ``gone``, and the upper half of the order key, so that most lists which are not there are known not to
  be without a look at the disk; and how many of its rows and bytes lie in which panes (see ``pane_counts``), so that
  what has expired is not taken for live.
- Whoever looks at a whole index does so in ``parts``: the memory for it does not grow with the lists.

Threads: as the instance that owns it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.append import list_kernels as lk
from tailrace.state.append.pane_counts import PaneCounts
from tailrace.state.layout import PANE, RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.arrange import Slices, arrange, bits_for, low_bit_for
from tailrace.state.rows.rows import Rows, no_rows

GONE = 1
FIRST_SLOT = 2
UNKNOWN = 2**63 - 1
"""Trigger time of a list for which none is known."""

_PART_LISTS = 1 << 17
_NO_SIZES = np.empty(0, np.int64)


@dataclass(frozen=True)
class Targets:
    """Lists that are looked for: distinct (key, pane) in rows, their order keys, and the rows by ascending key."""

    rows: Rows
    keys: np.ndarray
    order: np.ndarray
    pane_min: int
    pane_max: int

    @classmethod
    def of(cls, rows: Rows, keys: np.ndarray) -> Targets:
        panes = rows.words[:, PANE]
        return cls(rows, keys, np.argsort(keys), int(panes.min()), int(panes.max()))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Index:
    """What is known of each list, ascending by order key."""

    keys: np.ndarray  # uint64[lists]
    starts: np.ndarray  # int64[lists + 1], rows
    triggers: np.ndarray  # int64[lists]
    panes: np.ndarray  # int64[lists]
    heap: np.ndarray  # int64[lists], bytes of its strings; empty where rows have none

    @property
    def nbytes(self) -> int:
        return int(sum(getattr(self, column.name).nbytes for column in fields(self)))


NO_INDEX = Index(np.empty(0, np.uint64), np.zeros(1, np.int64), *(np.empty(0, np.int64) for _ in range(3)))


class ListRun:
    def __init__(self, rows: Rows, index: Index, gone: np.ndarray, file: ScratchFile | None = None) -> None:
        self.rows = rows
        self.index = index
        self.gone = gone  # uint8[lists]
        self.slots: set[int] = set()  # those in ``gone``
        self._dead_rows = self._dead_bytes = 0  # gone for good
        self.pane_min, self.pane_max = 2**63 - 1, -(2**63)
        self.trigger_min = UNKNOWN  # at most that of any list that is there
        self.prefixes = None if file is None else np.empty(len(gone), np.uint32)
        self._file = file
        self._panes: PaneCounts | None = None  # of lists that are not gone for good
        for part in self.parts():
            self.slots.update((np.flatnonzero(np.bincount(gone[part])[FIRST_SLOT:]) + FIRST_SLOT).tolist())
            self.pane_min = min(self.pane_min, int(index.panes[part].min()))
            self.pane_max = max(self.pane_max, int(index.panes[part].max()))
            self.trigger_min = min(self.trigger_min, int(index.triggers[part].min()))
            if self.prefixes is not None:
                self.prefixes[part] = index.keys[part] >> np.uint64(32)
        self.has_triggers = self.trigger_min < UNKNOWN
        if file is not None:
            self._panes = self._count_panes()  # now: later it would be a look at the disk

    def __len__(self) -> int:
        return len(self.gone)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        held = self.gone.nbytes + (0 if self._panes is None else self._panes.nbytes)
        if self.prefixes is not None:
            return int(self.prefixes.nbytes + held)
        return int(self.rows.words.nbytes + self.rows.heap.nbytes + self.index.nbytes + held)

    @property
    def disk_bytes(self) -> int:
        return 0 if self._file is None else self._file.nbytes

    @property
    def lists_there(self) -> int:
        return len(self.gone) - int(np.count_nonzero(self.gone))

    def parts(self) -> Iterator[slice]:
        """All lists, some at a time: what was looked at of a segment's index need not stay in memory."""
        for first in range(0, len(self), _PART_LISTS):
            yield slice(first, min(first + _PART_LISTS, len(self)))
            self.release()

    def rows_from(self, pane: int) -> int:
        """Rows that are not gone for good and do not lie before this pane."""
        if pane <= self.pane_min:
            return len(self.rows) - self._dead_rows
        return 0 if pane > self.pane_max else self._counts.rows_from(pane)

    def visible_rows(self, horizon: int) -> int:
        """As ``rows_from``, without what was removed. Costs what was removed lately, not a pass over the index."""
        left = self.rows_from(horizon)
        if self.slots and left:
            pending = np.flatnonzero(self.gone >= FIRST_SLOT)
            if self._panes is not None:
                pending = pending[self._panes.counted_from(self.index.panes[pending], horizon)]
            left -= int(self._lengths(pending).sum())
        return left

    def live_share(self, floor: int) -> float:
        """Part of the bytes that is not gone for good, nor lies before the floor."""
        total = self.rows.words.nbytes + self.rows.heap.nbytes + self._index_bytes * len(self)
        if not total or floor > self.pane_max:
            return 0.0
        left = total - self._dead_bytes if floor <= self.pane_min else self._counts.bytes_from(floor)
        return left / total

    @property
    def _counts(self) -> PaneCounts:
        if self._panes is None:
            self._panes = self._count_panes()
        return self._panes

    def _count_panes(self) -> PaneCounts:
        counts = PaneCounts(self.index.panes, self.pane_max)
        for part in self.parts():
            stays = part.start + np.flatnonzero(self.gone[part] != GONE)
            counts.add(self.index.panes[stays], self._lengths(stays), self._bytes(stays))
        return counts

    def _lengths(self, lists: np.ndarray) -> np.ndarray:
        lengths: np.ndarray = self.index.starts[lists + 1] - self.index.starts[lists]
        return lengths

    def row_bytes(self, lists: np.ndarray) -> np.ndarray:
        """What the rows of these lists take, strings included."""
        sizes: np.ndarray = self._lengths(lists) * (8 * self.rows.words.shape[1])
        return sizes + self.index.heap[lists] if len(self.index.heap) else sizes

    def _bytes(self, lists: np.ndarray) -> np.ndarray:
        """With what the index has of them."""
        return self.row_bytes(lists) + self._index_bytes

    @property
    def _index_bytes(self) -> int:
        """Of a list."""
        return 8 * (5 if len(self.index.heap) else 4)

    # Removing --------------------------------------------------------------------------------------------------------

    def remove(self, lists: np.ndarray, slot: int) -> None:
        if len(lists):
            self.gone[lists] = slot
            self.slots.add(slot)

    def restore(self, slot: int) -> None:
        """The epoch is undone: what it removed is there again."""
        if slot in self.slots:
            self.gone[self.gone == slot] = 0
            self.slots.discard(slot)

    def confirm(self, slot: int) -> None:
        """The epoch is forgotten: what it removed is gone for good."""
        if slot in self.slots:
            self.bury(np.flatnonzero(self.gone == slot))
            self.slots.discard(slot)

    def bury(self, lists: np.ndarray) -> None:
        """Gone for good; lists that are so already must not be named again."""
        self.gone[lists] = GONE
        lengths, sizes = self._lengths(lists), self._bytes(lists)
        self._dead_rows += int(lengths.sum())
        self._dead_bytes += int(sizes.sum())
        if self._panes is not None:
            self._panes.add(self.index.panes[lists], -lengths, -sizes)

    def bury_before(self, pane: int) -> None:
        """The lists of earlier panes are gone for good."""
        for part in self.parts():
            self.bury(part.start + np.flatnonzero((self.gone[part] != GONE) & (self.index.panes[part] < pane)))
        self.pane_min = pane

    # Finding ---------------------------------------------------------------------------------------------------------

    def may_have(self, targets: Targets) -> bool:
        """False where, by their panes, none of these lists is here."""
        return self.pane_min <= targets.pane_max and targets.pane_min <= self.pane_max

    def find(self, targets: Targets, layout: RecordLayout) -> np.ndarray:
        """For each target the number of its list, or -1."""
        out = np.full(len(targets), -1, np.int64)
        if len(self) and len(targets):
            lk.find_lists(
                self.index.keys, self.index.starts, self.gone, self.rows.words, self.rows.heap,
                targets.rows.words, targets.rows.heap, targets.keys, targets.order,
                layout.key_words, layout.key_mask, out,
            )  # fmt: skip
        return out

    def lists_with(self, keys: np.ndarray) -> np.ndarray:
        """Lists of a segment that are there with one of these order keys (ascending, distinct), ascending."""
        assert self.prefixes is not None
        room = len(keys)
        while True:
            out = np.empty(room, np.int64)
            found = lk.lists_of_keys(self.prefixes, self.index.keys, self.gone, keys, out)
            if found <= room:
                return out[:found]
            room = found  # several exact keys with one order key

    def slices(self, lists: np.ndarray) -> Slices:
        return Slices(
            self.rows,
            np.ascontiguousarray(self.index.starts[lists]),
            np.ascontiguousarray(self.index.starts[lists + 1]),
        )

    def release(self) -> None:
        """A segment's pages need not stay in memory."""
        if self._file is not None:
            self._file.release()

    def close(self) -> None:
        width = self.rows.words.shape[1]
        self.rows = Rows(np.empty((0, width), np.int64), np.empty(0, np.uint8))
        self.index, self.gone, self._panes = NO_INDEX, np.empty(0, np.uint8), None
        self._dead_rows = self._dead_bytes = 0
        if self._file is not None:
            self.prefixes = np.empty(0, np.uint32)
            self._file.close()


@dataclass(frozen=True)
class Built:
    """A new run, and where its lists come from: list ``i`` is made of slices ``order[edges[i]:edges[i + 1]]``."""

    run: ListRun
    order: np.ndarray
    edges: np.ndarray


def build(
    sources: Sequence[Slices], keys: np.ndarray, triggers: np.ndarray, gone: np.ndarray, layout: RecordLayout
) -> Built:
    """A run in memory of slices (each of one list), oldest first; keys, triggers and ``gone`` for each slice."""
    if not len(keys):
        empty = ListRun(no_rows(layout), NO_INDEX, np.empty(0, np.uint8))
        return Built(empty, np.empty(0, np.int64), np.zeros(1, np.int64))
    arranged = arrange(sources, keys, layout, exact=True, with_pane=True, low_bit=low_bit_for(len(keys)))
    room = np.empty(len(keys) + 1, np.int64)
    rows, how = arranged.rows, (layout.key_words, layout.key_mask, True)
    count = rk.key_edges(arranged.starts[:-1], rows.words, rows.heap, *how, room)
    edges, starts = room[:count], arranged.starts[room[:count]]
    index = Index(
        arranged.keys[edges],
        np.append(starts, len(rows)),
        np.maximum.reduceat(triggers[arranged.order], edges),
        rows.words[starts, PANE],
        np.diff(arranged.heap_starts[room[:count]], append=len(rows.heap)) if layout.has_bytes else _NO_SIZES,
    )
    # All slices of one list share their state: a removal takes the list with all its slices.
    run = ListRun(rows, index, gone[arranged.order[edges]])
    return Built(run, arranged.order, np.append(edges, len(keys)))


def merged(runs: Sequence[ListRun], layout: RecordLayout, floor: int) -> ListRun:
    """Several runs, oldest first, as one in memory: without what is gone for good or lies before ``floor``."""
    return merged_lists([(run, 0, len(run)) for run in runs], layout, floor)


def merged_lists(parts: Sequence[tuple[ListRun, int, int]], layout: RecordLayout, floor: int) -> ListRun:
    """Of each run the lists from one number to another."""
    sources, keys, triggers, gone = [], [], [], []
    for run, first, end in parts:
        lists = first + np.flatnonzero((run.gone[first:end] != GONE) & (run.index.panes[first:end] >= floor))
        sources.append(run.slices(lists))
        keys.append(run.index.keys[lists])
        triggers.append(run.index.triggers[lists])
        gone.append(run.gone[lists])
    return build(sources, np.concatenate(keys), np.concatenate(triggers), np.concatenate(gone), layout).run


def list_order(rows: Rows, shards: int, instances: int) -> np.ndarray:
    """Order keys of lists, (key, pane): by instance, then shard, then mixed bits."""
    keys = np.empty(len(rows), np.uint64)
    lk.list_keys(rows.words, instances, bits_for(instances), shards, bits_for(shards), keys)
    return keys
