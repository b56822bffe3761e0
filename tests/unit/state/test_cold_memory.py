"""What reading and rewriting cold records take in memory, however many there are."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tailrace.env.scratch import temporary_folder
from tailrace.state import cold_rewrite, cold_segment
from tailrace.state.cold import ColdRecords
from tailrace.state.cold_segment import ColdSegment
from tailrace.state.layout import HASH, PANE, VALID, Merge, record_layout
from tailrace.state.runs import take
from tailrace.state.segment_writer import DiskWriter
from tailrace.state.table import Rows
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
KEY, SUM = LAYOUT.keys[0].word, LAYOUT.accumulators[0].word
SHARDS = 2
NO_HORIZON = -(2**63)


def records(keys: np.ndarray, panes: int = 1) -> Rows:
    """Of these keys, in panes by turns; the sum tells the key."""
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, HASH] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    words[:, PANE] = keys % panes
    words[:, VALID] = 3
    words[:, KEY] = words[:, SUM] = keys
    return Rows(words, np.empty(0, np.uint8))


def by_shard(keys: np.ndarray, panes: int) -> tuple[Rows, np.ndarray]:
    shards = keys // panes % SHARDS
    order = np.argsort(shards, kind="stable")
    return records(keys[order], panes), np.searchsorted(shards[order], np.arange(SHARDS + 1))


def filled(folder: str, count: int, segments: int, panes: int = 1) -> ColdRecords:
    """Segments of so many records together, those of a shard being ``key // panes % SHARDS``."""
    cold = ColdRecords(LAYOUT, folder, 2.0)
    keys = np.arange(count)
    for number in range(segments):
        own = keys[number::segments]
        parts = [own[own // panes % SHARDS == shard] for shard in range(SHARDS)]
        cold.put(((shard, records(part, panes)) for shard, part in enumerate(parts)), len(own))
        cold.write_buffer()
    cold.wait_for_writes()
    return cold


def keys_of(cold: ColdRecords, panes: int = 1) -> np.ndarray:
    every = np.arange(panes, dtype=np.int64)
    return np.sort(np.concatenate([cold.rows_of(shard, every).words[:, SUM] for shard in range(SHARDS)]))


def settling_bytes(count: int, panes: int) -> int:
    """The most that merging segments takes at a time, beyond what was there before."""
    with temporary_folder() as folder:
        tracemalloc.start()
        cold = filled(folder, count, 8, panes)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        cold.settle(NO_HORIZON)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (cold.compactions, len(cold._segments)) == (1, 1)
        assert (keys_of(cold, panes) == np.arange(count)).all()
        cold.close()
        return peak - before


@pytest.mark.parametrize("panes", [1, 100])
def test_rewriting_takes_no_memory_in_proportion_to_the_records(monkeypatch: pytest.MonkeyPatch, panes: int) -> None:
    monkeypatch.setattr(cold_rewrite, "PIECE_BYTES", 1 << 20)
    settling_bytes(10_000, panes)  # what is compiled and imported at the first time
    few, many = (settling_bytes(count, panes) for count in (30_000, 240_000))
    assert many < few * 1.3 < 1 << 20


def test_taken_records_are_followed_through_pieces_and_the_others_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_rewrite, "PIECE_BYTES", 20_000)
    with temporary_folder() as folder:
        cold = filled(folder, 5_000, 3, panes=3)
        gone, taken = np.arange(0, 5_000, 3), np.arange(1, 5_000, 7)
        for epoch, keys in enumerate([gone, taken[~np.isin(taken, gone)]]):
            wanted = by_shard(keys, 3)
            assert sum(len(rows) for rows, _ in cold.take_all(epoch, *wanted, 0)) == len(keys)
        cold.forget(0)
        cold._rewrite(list(cold._segments))
        left = np.setdiff1d(np.arange(5_000), gone)
        assert (keys_of(cold, 3) == np.setdiff1d(left, taken)).all()
        (segment,) = cold._segments
        assert len(segment.tags) == len(left)
        cold.undo(1)
        assert (keys_of(cold, 3) == left).all()
        assert cold.rows(NO_HORIZON) == len(left)
        found, _ = cold.lookup_all(*by_shard(np.arange(5_000), 3), 0)
        assert (np.sort(found.words[:, SUM]) == left).all()
        cold.close()


def test_ranges_of_tags_are_all_records_once() -> None:
    with temporary_folder() as folder:
        cold = filled(folder, 3_000, 2)
        one_shard = np.arange(0, 3_000, 4)
        list(cold.take_all(0, records(one_shard), np.array([0, len(one_shard), len(one_shard)]), 0))
        edges = np.linspace(0, cold_segment.TAGS, 8).astype(np.int64)
        panes = np.zeros(1, np.int64)
        for shard in range(SHARDS):
            parts = [cold.rows_of(shard, panes, int(a), int(b)) for a, b in itertools.pairwise(edges)]
            assert all(len(part) for part in parts)
            got = np.sort(np.concatenate([part.words[:, SUM] for part in parts]))
            want = np.setdiff1d(np.arange(shard, 3_000, SHARDS), one_shard)
            assert (got == want).all()
        cold.close()


def segment_of(folder: str, count: int) -> ColdSegment:
    writer = DiskWriter(LAYOUT, folder)
    writer.add(0, [(records(np.arange(count)), np.arange(count), np.zeros(count, bool))])
    segment = writer.finish()
    assert segment is not None
    return segment


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell what is mapped")
def test_reading_far_apart_holds_few_pages_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_segment, "READ_BYTES", 1 << 20)
    seen = []
    real = ColdSegment.release

    def watched(self: ColdSegment) -> None:
        seen.append(file_pages())
        real(self)

    monkeypatch.setattr(ColdSegment, "release", watched)
    with temporary_folder() as folder:
        segment = segment_of(folder, 500_000)
        at = np.arange(0, 500_000, 97)
        before = file_pages()
        got = segment.copied(at)
        assert segment.disk_bytes > 16 << 20
        assert max(seen) - before < 8 << 20  # the system may map pages of 2 MB
        assert file_pages() - before < 1 << 20
        assert (got.words == take(segment.rows, at, LAYOUT).words).all()
        segment.close()


def file_pages() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) << 10
