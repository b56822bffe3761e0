"""Rows of a batch by their keys: equal ones numbered alike, the earliest of each, and frames some shards at a time.

What is chosen of several rows with one key depends on the rows and on their order only (partition after partition, and
inside a partition as they came), so that a replay chooses alike; and choosing among what was chosen of parts chooses
what choosing among all would: tasks may do it before they send.

Threads: pure functions; frames are only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame
from tailrace.state.layout import HASH, PANE, AccumulatorWords, KeyWords, RecordLayout
from tailrace.state.rows import key_kernels as pk
from tailrace.state.rows.arrange import take
from tailrace.state.rows.groups import key_numbers
from tailrace.state.rows.rows import Rows, concat_rows, plain

PIECE_ROWS = 1 << 17
"""About so many rows are worked on at a time: bounds the memory that it takes."""

_PANE_MIX = np.int64(-7046029254386353131)
_SAMPLE_ALL = 1 << 15


@dataclass(frozen=True)
class Keyed:
    """``numbers``: of each row that of its key, counted as keys come; ``firsts``: of each key its first row."""

    numbers: np.ndarray
    firsts: np.ndarray

    def __len__(self) -> int:
        return len(self.firsts)

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.numbers, minlength=len(self.firsts)).astype(np.int64)


def keyed(rows: Rows, layout: RecordLayout) -> Keyed:
    """Rows of one key and pane are of one number."""
    return Keyed(*key_numbers(rows, layout))


def earliest(rows: Rows, groups: Keyed, time: KeyWords | AccumulatorWords | None) -> np.ndarray:
    """Of each key the row with the smallest time, then the first; without a time the first."""
    chosen = groups.firsts.copy()
    if time is not None:
        pk.earliest_rows(rows.words, time.word, time.bit, groups.numbers, chosen)
    return chosen


def pieces(frames: Sequence[Frame], layout: RecordLayout, rows_max: int) -> Iterator[Rows]:
    """All rows of the frames, some shards at a time: all rows of a key are in one piece, frame after frame."""
    if not frames:
        return
    sizes, low = np.sum([np.diff(frame.bounds) for frame in frames], axis=0), 0
    while low < len(sizes):
        ends = np.cumsum(sizes[low:])
        high = low + max(1, int(np.searchsorted(ends, rows_max, side="right")))
        if ends[high - low - 1]:
            yield _piece(frames, low, high, layout)
        low = high


def _piece(frames: Sequence[Frame], low: int, high: int, layout: RecordLayout) -> Rows:
    parts = []
    for frame in frames:
        start, stop = int(frame.bounds[low]), int(frame.bounds[high])
        if stop == start:
            continue
        if stop - start < frame.n:
            parts.append(take(Rows(frame.rows, frame.heap), np.arange(start, stop), layout))
        else:
            parts.append(Rows(frame.rows, frame.heap))
    if len(parts) > 1:  # putting them together changes words, and those of a frame are not ours
        parts = [Rows(part.words.copy(), part.heap) for part in parts]
    return plain(concat_rows(parts, layout))


def sample(rows: Rows, layout: RecordLayout, counts: IngestCounts, kept: int = 1) -> None:
    """Learn, from a task's first rows, how many would be left if ``kept`` of each key were; it decides the next epochs.

    Of very many rows some keys are looked at, with all their rows, so that the share is right; all keys as long as that
    is quick: where few keys have half of the rows, a choice of keys says little.
    """
    if counts.sampled_rows or not len(rows):
        return
    if len(rows) > _SAMPLE_ALL:
        keys = rows.words[:, HASH] ^ (rows.words[:, PANE] * _PANE_MIX)
        rows = Rows(rows.words[keys >> 48 & 15 == 0], rows.heap)
    counts.sampled_rows = len(rows)
    counts.sampled_keys = int(np.minimum(keyed(rows, layout).sizes, kept).sum())
