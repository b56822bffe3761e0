"""The memory that reading and compacting spilled records takes, however many there are."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from support.stores.spilled_keys import LAYOUT, NO_HORIZON, SUM, SpilledKeys, records
from tailrace.env.files.point_file import PointFile
from tailrace.env.files.scratch import temporary_folder
from tailrace.state.rows.arrange import take
from tailrace.state.segments import compaction as compaction
from tailrace.state.segments import point_reads as point_rows
from tailrace.state.segments import segment as segment_module
from tailrace.state.segments.segment import Segment
from tailrace.state.segments.writer import DiskWriter


def filled(folder: str, count: int, segments: int, panes: int = 1) -> SpilledKeys:
    """Segments of so many records together."""
    store = SpilledKeys(folder, panes=panes)
    for number in range(segments):
        store.put(np.arange(number, count, segments))
    return store


def settling_bytes(count: int, panes: int) -> int:
    """The most that merging segments takes at a time, beyond what was there before."""
    with temporary_folder() as folder:
        tracemalloc.start()
        store = filled(folder, count, 8, panes)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        store.spilled.compact(NO_HORIZON)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (store.spilled.compactions, len(store.spilled._segments)) == (1, 1)
        assert (store.read() == np.arange(count)).all()
        store.spilled.close()
        return peak - before


@pytest.mark.parametrize("panes", [1, 100])
def test_rewriting_takes_no_memory_in_proportion_to_the_records(monkeypatch: pytest.MonkeyPatch, panes: int) -> None:
    monkeypatch.setattr(compaction, "PIECE_BYTES", 1 << 20)
    settling_bytes(10_000, panes)  # what is compiled and imported at the first time
    few, many = (settling_bytes(count, panes) for count in (30_000, 240_000))
    assert many < few * 1.3 < 1 << 20


def test_taken_records_are_followed_through_pieces_and_the_others_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "PIECE_BYTES", 20_000)
    with temporary_folder() as folder:
        store = filled(folder, 5_000, 3, panes=3)
        gone = np.arange(0, 5_000, 3)
        taken = np.setdiff1d(np.arange(1, 5_000, 7), gone)
        assert (store.take(0, gone), store.take(1, taken)) == (len(gone), len(taken))
        store.spilled.forget(0)
        store.spilled._replace(list(store.spilled._segments))
        left = np.setdiff1d(np.arange(5_000), gone)
        assert (store.read() == np.setdiff1d(left, taken)).all()
        (segment,) = store.spilled._segments
        assert len(segment.fingerprints) == len(left)
        store.spilled.undo(1)
        assert (store.read() == left).all()
        assert (store.found(np.arange(5_000)) == left).all()
        assert store.spilled.rows(NO_HORIZON) == len(left)
        store.spilled.close()


def test_ranges_of_fingerprints_are_all_records_once() -> None:
    with temporary_folder() as folder:
        store = filled(folder, 3_000, 2)
        store.take(0, np.arange(0, 3_000, 4))
        edges = np.linspace(0, segment_module.FINGERPRINTS, 8).astype(np.int64)
        panes = np.zeros(1, np.int64)
        for shard in range(store.shards):
            parts = [store.spilled.rows_of(shard, panes, int(a), int(b)) for a, b in itertools.pairwise(edges)]
            assert all(len(part) for part in parts)
            got = np.sort(np.concatenate([part.words[:, SUM] for part in parts]))
            want = np.setdiff1d(np.arange(shard, 3_000, store.shards), np.arange(0, 3_000, 4))
            assert (got == want).all()
        store.spilled.close()


def segment_of(folder: str, count: int, direct: bool) -> Segment:
    writer = DiskWriter(LAYOUT, folder, direct=direct)
    writer.add(0, [(records(np.arange(count)), np.arange(count), np.zeros(count, bool))])
    segment = writer.finish()
    assert segment is not None
    return segment


@pytest.mark.parametrize("direct", [False, True])
def test_reading_far_apart_holds_few_pages_of_the_files(monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    monkeypatch.setattr(point_rows, "READ_BYTES", 1 << 20)
    seen: list[int] = []
    real = PointFile.gather

    def watched(self: PointFile, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        buffer, places = real(self, starts, lengths)
        seen.append(buffer.nbytes)
        return buffer, places

    monkeypatch.setattr(PointFile, "gather", watched)
    with temporary_folder() as folder:
        segment = segment_of(folder, 500_000, direct)
        at = np.arange(0, 500_000, 97)
        segment.copied(at[:1])  # compiling touches pages of its libraries
        seen.clear()
        before = file_pages()
        got = segment.copied(at)
        assert segment.disk_bytes > 16 << 20
        assert not direct or (len(seen) > 1 and max(seen) <= 1 << 20)
        assert file_pages() - before < 1 << 20
        assert (got.words == take(segment.rows, at, LAYOUT).words).all()
        segment.close()


def file_pages() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) << 10
