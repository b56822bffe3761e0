"""The memory that the unaligned store takes for its index: none in proportion to the lists but what it is said to keep.

Traced is what Python allocates; pages of mapped files are counted where they would pile up: when a piece is written.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.append import list_instance, list_runs
from tailrace.state.append.unaligned import AppendUnalignedStore
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.tuning import Tuning
from tailrace.types import BIGINT, Field

LAYOUT = record_layout([Field("k", BIGINT)], [(Merge.ROW, BIGINT)], ansi=False)
MEMORY = 2_000_000
FEW, MANY = 40_000, 240_000
EPOCHS = 8
KEPT_BYTES = 5  # of a list on disk
LATER = 10**6


def rows_of(keys: np.ndarray, panes: np.ndarray | int = 0) -> Rows:
    words = np.zeros((len(keys), LAYOUT.words), np.int64)
    words[:, 0] = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)
    words[:, 1], words[:, 2], words[:, 3] = panes, 3, keys
    return Rows(words, np.empty(0, np.uint8))


def filled(folder: Path, lists: int, tuning: Tuning) -> AppendUnalignedStore:
    """Nearly all lists are on disk; every other one is of pane 0 and the rest of pane 1, and all have triggers."""
    store = AppendUnalignedStore(
        LAYOUT, range(1), shard_count=1, memory_bytes=MEMORY, folder=str(folder), threads=1, tuning=tuning,
        undo_epochs=1, instances=1,
    )  # fmt: skip
    for epoch in range(EPOCHS):
        keys = np.arange(epoch, lists, EPOCHS)
        rows = rows_of(keys, keys // EPOCHS % 2)
        store.append(epoch, [(rows, np.array([0, len(keys)]))], [LATER + keys])
    store.forget(EPOCHS - 1)
    return store


def traced(step: Callable[[], object]) -> int:
    """The most that it takes beyond what was there before."""
    tracemalloc.start()
    step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def file_pages() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1]) << 10


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_runs, "_PART_LISTS", 1 << 13)
    monkeypatch.setattr(list_instance, "PIECE_BYTES", 200_000)


def test_compaction_takes_no_memory_in_proportion_to_the_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    write = ScratchFile.write

    def watched(file: ScratchFile, array: np.ndarray, offset: int) -> None:
        write(file, array, offset)
        pages.append(file_pages())

    peaks, segments = {}, 0
    for lists in (1_000, FEW, MANY):  # at the first time kernels are loaded
        store = filled(tmp_path, lists, Tuning(max_space_amplification=100.0))
        (instance,) = store._instances
        segments = len(instance.segments)
        with monkeypatch.context() as patched:
            patched.setattr(ScratchFile, "write", watched)
            pages[:] = [file_pages()]
            peaks[lists] = traced(lambda instance=instance, segments=segments: instance._compact(segments))
        assert sum(len(segment) for segment in instance.segments) > lists / 2 or lists < FEW
        assert len(instance.segments) <= 1
        store.close()
    assert len(pages) > 50
    # What is kept of the new segment, twice for the byte that says what is gone.
    assert peaks[MANY] - peaks[FEW] < (KEPT_BYTES + 2) * (MANY - FEW)
    assert max(pages) - pages[0] < 2 * MEMORY


def test_looks_at_the_index_take_no_memory_in_proportion_to_the_lists(tmp_path: Path) -> None:
    peaks = {}
    for lists in (1_000, FEW, MANY):
        store = filled(tmp_path, lists, Tuning(read_batch_ratio=0.001, max_space_amplification=100.0))
        before = store.stats().index_scans
        last = lists // (2 * EPOCHS) * 2 * EPOCHS - EPOCHS  # of those that came first, due late

        def look(store: AppendUnalignedStore = store, last: int = last) -> None:
            store.open_epoch(EPOCHS)
            store.read(rows_of(np.array([last - EPOCHS])), remove=True)
            store.expire(1)
            store.forget(EPOCHS)
            store.open_epoch(EPOCHS + 1)
            store.read(rows_of(np.array([last]), 1), remove=True)

        peaks[lists] = traced(look)
        if lists > 1_000:
            assert store.stats().index_scans >= before + 2 and store.stats().lists_prefetched > 10
            assert store.rows == sum(len(range(e, lists, EPOCHS)) // 2 for e in range(EPOCHS)) - 1
        store.close()
    assert peaks[MANY] - peaks[FEW] < 2 * (MANY - FEW)
