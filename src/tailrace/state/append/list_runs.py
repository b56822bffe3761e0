"""Runs of the unaligned store: rows that lie list by list, a list being the rows of one (key, pane).

Invariants
- Lists are sorted by order key, then exact key; the rows of a list keep the order of arrival.
- A run is immutable but for ``gone``, one byte for each list: 0, or ``GONE`` for good, or the slot of an epoch that can
  be undone and that removed it. Undoing turns a slot to 0, forgetting turns it to ``GONE``.
- A segment is a run whose rows and index are mapped from disk. In memory stay 5 bytes for each of its lists: ``gone``,
  and the upper half of the order key, so that most lists which are not there are known not to be without a look at
  the disk; and how many of its rows lie in which panes (see ``pane_counts``), so that rows which have expired are not
  taken for live ones.

Threads: as the instance that owns it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

_SAMPLES = 512
_COLUMNS = ("keys", "starts", "triggers", "panes")


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

    @property
    def nbytes(self) -> int:
        return int(self.keys.nbytes + self.starts.nbytes + self.triggers.nbytes + self.panes.nbytes)


NO_INDEX = Index(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


class ListRun:
    def __init__(self, rows: Rows, index: Index, gone: np.ndarray, file: ScratchFile | None = None) -> None:
        self.rows = rows
        self.index = index
        self.gone = gone  # uint8[lists]
        pending = gone[gone >= FIRST_SLOT]
        self.slots: set[int] = set(np.unique(pending).tolist()) if len(pending) else set()  # those in ``gone``
        self.dead_rows = 0  # gone for good
        self.has_triggers = bool((index.triggers < UNKNOWN).any())
        self.pane_min = int(index.panes.min(initial=2**63 - 1))
        self.pane_max = int(index.panes.max(initial=-(2**63)))
        self.trigger_min = int(index.triggers.min(initial=UNKNOWN))  # at most that of any list that is there
        self.prefixes: np.ndarray | None = None
        self._file = file
        self._panes: PaneCounts | None = None  # of lists that are not gone for good
        if file is not None:
            self.prefixes = (index.keys >> np.uint64(32)).astype(np.uint32)
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

    def rows_from(self, pane: int) -> int:
        """Rows that are not gone for good and do not lie before this pane."""
        if pane <= self.pane_min:
            return len(self.rows) - self.dead_rows
        if pane > self.pane_max:
            return 0
        if self._panes is None:
            self._panes = self._count_panes()
        return self._panes.rows_from(pane)

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
        """Part of the rows that is not gone for good, nor lies before the floor."""
        return self.rows_from(floor) / len(self.rows) if len(self.rows) else 0.0

    def _count_panes(self) -> PaneCounts:
        stays = self.gone != GONE
        return PaneCounts(self.index.panes[stays], np.diff(self.index.starts)[stays])

    def _lengths(self, lists: np.ndarray) -> np.ndarray:
        lengths: np.ndarray = self.index.starts[lists + 1] - self.index.starts[lists]
        return lengths

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
        lengths = self._lengths(lists)
        self.dead_rows += int(lengths.sum())
        if self._panes is not None:
            self._panes.add(self.index.panes[lists], -lengths)

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
        self.index, self.gone, self.dead_rows, self._panes = NO_INDEX, np.empty(0, np.uint8), 0, None
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
    )
    # All slices of one list share their state: a removal takes the list with all its slices.
    run = ListRun(rows, index, gone[arranged.order[edges]])
    return Built(run, arranged.order, np.append(edges, len(keys)))


def merged(runs: Sequence[ListRun], layout: RecordLayout, floor: int) -> ListRun:
    """Several runs, oldest first, as one in memory: without what is gone for good or lies before ``floor``."""
    return _merged([(run, 0, len(run)) for run in runs], layout, floor)


def _merged(parts: Sequence[tuple[ListRun, int, int]], layout: RecordLayout, floor: int) -> ListRun:
    """Of each run the lists from one number to another."""
    sources, keys, triggers, gone = [], [], [], []
    for run, first, end in parts:
        lists = first + np.flatnonzero((run.gone[first:end] != GONE) & (run.index.panes[first:end] >= floor))
        sources.append(run.slices(lists))
        keys.append(run.index.keys[lists])
        triggers.append(run.index.triggers[lists])
        gone.append(run.gone[lists])
    return build(sources, np.concatenate(keys), np.concatenate(triggers), np.concatenate(gone), layout).run


def written(runs: Sequence[ListRun], layout: RecordLayout, floor: int, folder: str, piece_bytes: int) -> ListRun | None:
    """As ``merged``, but to a segment on disk, about ``piece_bytes`` at a time; None where nothing is left."""
    # What is left out is not known before: each part of the file begins where the one before must have ended.
    row_bytes = 8 * layout.words
    heap_at = row_bytes * sum(len(run.rows) for run in runs)
    index_at = heap_at + sum(len(run.rows.heap) for run in runs)
    index_at += -index_at % 8
    rows_end = heap_end = 0
    pieces: list[Index] = []
    gone: list[np.ndarray] = []
    file = ScratchFile(folder)
    try:
        for parts in _key_ranges(runs, piece_bytes):
            piece = _merged(parts, layout, floor)
            rk.shift_strings(piece.rows.words, layout.bytes_words, heap_end)
            file.write(piece.rows.words, row_bytes * rows_end)
            file.write(piece.rows.heap, heap_at + heap_end)
            own = piece.index
            pieces.append(Index(own.keys, own.starts[:-1] + rows_end, own.triggers, own.panes))
            gone.append(piece.gone)
            rows_end += len(piece.rows)
            heap_end += len(piece.rows.heap)
        if not rows_end:
            file.close()
            return None
        columns = [np.concatenate([getattr(piece, name) for piece in pieces]) for name in _COLUMNS]
        columns[1] = np.append(columns[1], rows_end)
        places = (index_at + np.cumsum([0, *(column.nbytes for column in columns)])).tolist()
        for column, place in zip(columns, places):
            file.write(column, place)
        words, heap, *mapped = file.sealed(
            (np.int64, 0, layout.words * rows_end),
            (np.uint8, heap_at, heap_end),
            *((column.dtype.type, place, len(column)) for column, place in zip(columns, places)),
        )
    except BaseException:
        file.close()
        raise
    segment = ListRun(Rows(words.reshape(-1, layout.words), heap), Index(*mapped), np.concatenate(gone), file)
    segment.release()
    return segment


def _key_ranges(runs: Sequence[ListRun], piece_bytes: int) -> Iterator[list[tuple[ListRun, int, int]]]:
    """All lists in ranges of order keys of about ``piece_bytes`` each: (run, first list, end) for every run."""
    samples, weights = [], []
    for run in runs:
        if len(run):
            chosen = np.arange(0, len(run), max(1, len(run) // _SAMPLES))
            samples.append(run.index.keys[chosen])
            weights.append(np.full(len(chosen), _data_bytes(run) / len(chosen)))
    if not samples:
        return
    keys = np.concatenate(samples)
    order = np.argsort(keys, kind="stable")
    piece = (np.cumsum(np.concatenate(weights)[order]) // max(piece_bytes, 1)).astype(np.int64)
    cuts = np.unique(keys[order][1:][np.diff(piece) > 0])
    firsts = [0] * len(runs)
    for cut in [*cuts, None]:
        ends = [len(run) if cut is None else int(np.searchsorted(run.index.keys, cut, "left")) for run in runs]
        yield list(zip(runs, firsts, ends))
        firsts = ends


def _data_bytes(run: ListRun) -> int:
    return int(run.rows.words.nbytes + run.rows.heap.nbytes)


def list_order(rows: Rows, shards: int, instances: int) -> np.ndarray:
    """Order keys of lists, (key, pane): by instance, then shard, then mixed bits."""
    keys = np.empty(len(rows), np.uint64)
    lk.list_keys(rows.words, instances, bits_for(instances), shards, bits_for(shards), keys)
    return keys
