"""Reading spilled records: what counts as waiting for them."""

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

    uid, in_memory = 1, False

    def __init__(self, folder: Path) -> None:
        self.rows = Rows(np.arange(10 * LAYOUT.words, dtype=np.int64).reshape(10, -1), np.empty(0, np.uint8))
        words, heap = ScratchFile(str(folder)), ScratchFile(str(folder))
        words.write(self.rows.words, 0)
        self.points = PointRows(LAYOUT, words, heap, direct=False)

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
    segment.points.close()
