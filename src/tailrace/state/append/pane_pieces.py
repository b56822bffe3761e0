"""Panes in pieces of bounded size, all rows of a key together.

A piece is one or more shards, or a range of hashes of a shard that is too large for one (see ``hash_ranges``). Its
rows are fixed when it is named, not when it is made: parts are snapshots of immutable runs. Callers get slices of the
runs themselves, and copy the rows that they keep.

Threads: pure functions; a piece may be made in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.append.hash_ranges import HashRange, hash_ranges, narrow
from tailrace.state.append.pane_runs import Cells, cuts
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.arrange import Slices, by_hash
from tailrace.state.rows.rows import Rows

Made = TypeVar("Made")

_MOST = 0.5
"""Where a piece has more of its runs' rows than this, all strings of the runs are copied at once: that is cheaper."""


@dataclass(frozen=True)
class Part:
    """Some cells of a run; of a segment where there is a file."""

    rows: Rows
    cells: Cells
    file: ScratchFile | None

    def of_shards(self, first: int, end: int) -> Part:
        return Part(self.rows, self.cells.where(between(self.cells.shards, first, end)), self.file)


def between(values: np.ndarray, first: int, end: int) -> np.ndarray:
    inside: np.ndarray = (values >= first) & (values < end)
    return inside


@dataclass(frozen=True)
class Piece:
    """All rows of some keys where they lie: slices of runs, oldest first, and the pane and shard of each slice."""

    sources: list[Slices]
    panes: list[np.ndarray]
    shards: list[np.ndarray]

    def by_key(self, layout: RecordLayout, shard_count: int) -> Rows:
        """A copy of the rows, by (shard, hash), those of a key pane by pane and in order of arrival."""
        in_time = np.argsort(np.concatenate(self.panes), kind="stable")
        whole = len(self.sources) > 1 and self._share() > _MOST
        return by_hash(self.sources, self.shards, shard_count, layout, in_time, whole_heaps=whole).rows

    def _share(self) -> float:
        """Of the rows of the runs, those that are in the piece."""
        here = sum(int((source.hi - source.lo).sum()) for source in self.sources)
        return here / max(1, sum(len(source.rows) for source in self.sources))


def pieces_of(
    parts: Sequence[Part], layout: RecordLayout, shard_count: int, piece_bytes: int, make: Callable[[Piece], Made]
) -> Iterator[Callable[[], Made]]:
    """All rows of the parts (runs oldest first), as functions that make a piece each; none is empty."""
    sizes = np.zeros(shard_count, np.int64)
    for part in parts:
        np.add.at(sizes, part.cells.shards, part.cells.row_bytes(layout))
    for first, end in cuts(sizes, piece_bytes):
        total = int(sizes[first:end].sum())
        if not total:
            continue
        here = [part.of_shards(first, end) for part in parts]
        if total <= piece_bytes:
            yield partial(_made, here, None, make)
            continue
        whole = [Slices(part.rows, part.cells.lo, part.cells.hi) for part in here]
        for hashes in hash_ranges(whole, layout, piece_bytes):
            yield partial(_made, here, hashes, make)


def _made(parts: Sequence[Part], hashes: HashRange | None, make: Callable[[Piece], Made]) -> Made:
    sources, panes, shards = [], [], []
    for part in parts:
        cells = part.cells
        if hashes is None:
            source, cell = Slices(part.rows, cells.lo, cells.hi), np.arange(len(cells))
        else:
            source, cell = narrow(part.rows, cells.lo, cells.hi, hashes, sorted_by_hash=part.file is not None)
        sources.append(source)
        panes.append(cells.panes[cell])
        shards.append(cells.shards[cell])
    made = make(Piece(sources, panes, shards))
    for part in parts:
        if part.file is not None:
            part.file.release()
    return made
