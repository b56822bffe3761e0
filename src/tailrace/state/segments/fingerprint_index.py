"""Candidate positions of the records of rows: by the fingerprints of all segments at once. No file is read.

There may be dozens of segments, and few rows for each: so one loop searches all of them, by the addresses of their
indexes in memory.

Threads: pure functions. The caller sees to it that no record is taken or given back meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tailrace.state.rows.rows import Rows
from tailrace.state.segments import kernels as ck

POSITION_BITS = 32
"""A segment has fewer records than two to the power of this."""


@dataclass(frozen=True)
class IndexAt:
    """The arrays of a segment's index, and where they lie: for as long as somebody holds them."""

    arrays: tuple[np.ndarray, ...]
    words: tuple[int, ...]

    @classmethod
    def of(
        cls, shards: np.ndarray, panes: np.ndarray, lo: np.ndarray, hi: np.ndarray, fingerprints: np.ndarray
    ) -> IndexAt:
        """Of cells, by (shard, pane), and of fingerprints."""
        cells = (shards, panes, lo, hi)
        for array, kind in (
            (shards, np.int64),
            (panes, np.int64),
            (lo, np.int64),
            (hi, np.int64),
            (fingerprints, np.uint32),
        ):
            if array.dtype != kind or not array.flags.c_contiguous:
                raise ValueError(f"an index needs {np.dtype(kind)} one after the other, not {array.dtype}")
        places = tuple(array.ctypes.data for array in cells)
        return cls((*cells, fingerprints), (*places, len(shards), fingerprints.ctypes.data, len(fingerprints)))


class Indexed(Protocol):
    @property
    def index_at(self) -> IndexAt: ...


@dataclass(frozen=True)
class CandidatePositions:
    """Which rows may have a record, and each such row, the number of the segment and the position there.

    By segment and position. There are no such lists where too many records share a fingerprint: then each shard must be
    searched by itself.
    """

    any: np.ndarray
    rows: np.ndarray | None
    which: np.ndarray
    at: np.ndarray


def candidate_positions(
    segments: Sequence[Indexed], rows: Rows, bounds: np.ndarray, horizon: int, *, once: bool = False
) -> CandidatePositions:
    """Of rows of all shards, sorted by shard.

    ``once``: a record lies in one segment, so a row with a candidate in one segment is not searched in those after it;
    a segment where so many records share a fingerprint that there is no room for them is left out.
    """
    room = len(rows) + len(rows) // 16 + 64
    any_ = np.zeros(len(rows), np.bool_)
    out_rows, which, at = (np.empty(room, np.int64) for _ in range(3))
    indexes = [segment.index_at for segment in segments]
    words = np.array([index.words for index in indexes], np.int64).reshape(-1, ck.INDEX_WORDS)
    count = int(ck.places(words, rows.words, bounds, horizon, once, any_, out_rows, which, at))
    if count < 0:
        return CandidatePositions(any_, None, which[:0], at[:0])
    order = np.argsort(which[:count] << POSITION_BITS | at[:count], kind="stable")
    return CandidatePositions(any_, out_rows[order], which[order], at[order])
