"""Reading spilled records: what counts as waiting for them, and what becomes of hints that are of no use any more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailrace.env import clock
from tailrace.env.files.scratch import ScratchFile
from tailrace.state.cache.record_cache import RecordCache
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.segments import reader as reader
from tailrace.state.segments.point_reads import PointRows
from tailrace.state.segments.reader import SegmentReader
from tailrace.state.segments.segment import SegmentClosedError
from tailrace.state.tuning import SpillTuning
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)


class Time:
    """Moves only by the steps that a test says take time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        for name, takes_s in (("get", 100.0), ("put", 1_000.0)):
            monkeypatch.setattr(RecordCache, name, self._taking(getattr(RecordCache, name), takes_s))
        monkeypatch.setattr(reader, "read_records", self._taking(reader.read_records, 1.0))

    def _taking(self, done: Any, takes_s: float) -> Any:
        def slowly(*given: Any, **named: Any) -> Any:
            self.now += takes_s
            return done(*given, **named)

        return slowly


class Segment:
    """Ten records in files."""

    in_memory = False

    def __init__(self, folder: Path, uid: int = 1) -> None:
        self.uid, self.closed = uid, False
        self.rows = Rows(np.arange(10 * LAYOUT.words, dtype=np.int64).reshape(10, -1), np.empty(0, np.uint8))
        words, heap = ScratchFile(str(folder)), ScratchFile(str(folder))
        words.write(self.rows.words, 0)
        self._points = PointRows(LAYOUT, words, heap, direct=False)

    @property
    def points(self) -> PointRows:
        if self.closed:
            raise SegmentClosedError
        return self._points

    def close(self) -> None:
        self._points.close()
        self.closed = True

    def copied(self, at: np.ndarray) -> Rows:
        return Rows(self.rows.words[at], self.rows.heap)

    def heap_bytes(self, count: int) -> int:
        return 0


def test_only_reading_counts_as_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Time(monkeypatch)
    segment, reads = Segment(tmp_path), SegmentReader(LAYOUT, 1 << 20, SpillTuning(prefetch="off", reads="direct"))
    first = reads.read(segment, np.array([1, 2, 3]), keep=True)
    assert (first.words == segment.rows.words[1:4]).all()
    assert reads.metrics()["spilledWaitMs"] == 1e3, "what it takes to keep a copy is no waiting"
    again = reads.read(segment, np.array([1, 2, 3]), keep=True)
    assert (again.words == first.words).all()
    assert reads.metrics()["spilledWaitMs"] == 1e3, "copies are there"
    more = reads.read(segment, np.array([1, 2, 5]), keep=True)
    assert (more.words == segment.rows.words[[1, 2, 5]]).all()
    reported = reads.metrics()
    assert reported["spilledWaitMs"] == 2e3, "copying two that are there is no waiting beside one that is not"
    assert (reported["spilledHits"], reported["spilledMisses"]) == (5, 4)
    reads.close()
    segment.close()


def test_a_segment_that_vanished_fails_its_own_hints_and_no_others(tmp_path: Path) -> None:
    segments = [Segment(tmp_path, uid) for uid in (1, 2)]
    reads = SegmentReader(LAYOUT, 1 << 20, SpillTuning(prefetch="on", hint_worth_s=0.0))
    segments[0].close()
    reads.hint(segments, np.repeat([0, 1], 5), np.tile(np.arange(5), 2), 0)
    reads.drain()
    reported = reads.metrics()
    assert (reported["hintsFetched"], reported["hintsFailed"]) == (5, 5)
    got = reads.read(segments[1], np.arange(5), keep=False)
    assert (got.words == segments[1].rows.words[:5]).all() and reads.metrics()["spilledHits"] == 5
    reads.close()
    segments[1].close()


def test_hints_for_an_epoch_that_is_over_are_dropped(tmp_path: Path) -> None:
    """They have waited for room in the cache, and would go on to do so."""
    segment, reads = Segment(tmp_path), SegmentReader(LAYOUT, 0, SpillTuning(prefetch="on"))
    reads.hint([segment], np.zeros(4, np.int64), np.arange(4), 1)
    reads.begin(1)
    assert (reads.metrics()["hintsDropped"], len(reads.known())) == (0, 4)
    reads.begin(2)
    assert (reads.metrics()["hintsDropped"], len(reads.known())) == (4, 0)
    reads.close()
    segment.close()
