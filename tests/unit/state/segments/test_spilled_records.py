"""A store larger than its memory: what it costs, what it evicts, and that nothing is lost where room runs out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from support.stores.spilled import LAYOUT, SHARDS, as_dict, content, fill, frame, store_of
from tailrace.api.options import ReadMode
from tailrace.env.files.scratch import ScratchFile
from tailrace.state.hash_table.table import Table
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import to_section
from tailrace.state.segments.segment import SegmentClosedError
from tailrace.state.segments.spilled_records import SpilledRecords
from tailrace.state.tuning import SpillTuning, Tuning


def test_a_spilled_record_costs_four_bytes_and_its_share_of_cells() -> None:
    with store_of(0) as store:
        fill(store, range(190), 0)
        spilled = store.spilled.index_bytes
        assert spilled == 190 * 4 + SHARDS * 40
        assert sum(table.rows for _, table in store.tables()) == 0
        assert store.disk_bytes >= 190 * LAYOUT.words * 8


def test_what_was_changed_lately_stays_in_memory() -> None:
    with store_of(60_000) as store:
        fill(store, range(190), 0)
        assert store.disk_bytes == 0
        for epoch in range(1, 30):
            fill(store, range(20), epoch)
            fill(store, range(190), 100 + epoch, pane=epoch) if epoch < 5 else None
        assert store.disk_bytes > 0
        hot = set()
        for _, table in store.tables():
            hot |= as_dict(to_section(table.copy(table.rows_of(table.panes(1))), LAYOUT)).keys()
        assert {(number, 0) for number in range(20)} <= hot


def test_disk_holds_no_more_than_the_allowed_share_of_dead_records() -> None:
    with store_of(0, tuning=Tuning(max_space_amplification=1.2)) as store:
        fill(store, range(190), 0)
        full = store.disk_bytes
        for epoch in range(1, 40):
            fill(store, range(epoch % 7, 190, 7), epoch)
            assert store.disk_bytes <= 1.2 * full * 1.1


def test_a_closed_pane_takes_its_spilled_records_along() -> None:
    with store_of(0) as store:
        for pane in range(4):
            fill(store, range(100), pane, pane)
        assert store.rows == 400
        store.merge(9, [])
        store.expire(3)
        assert store.rows == 100
        store.undo(9)
        assert store.rows == 400
        store.merge(9, [])
        store.expire(4)
        store.forget(9)
        assert (store.rows, store.disk_bytes, store.spilled.nbytes) == (0, 0, 0)


def test_what_an_epoch_took_can_be_undone_after_its_segment_was_rewritten() -> None:
    with store_of(0, tuning=Tuning(max_space_amplification=1.01)) as store:
        fill(store, range(190), 0)
        store.merge(1, [frame([(number, 0, 1, None) for number in range(0, 190, 2)], 1 << 20)])
        want = content(store)
        store.merge(2, [frame([(number, 0, 5, None) for number in range(1, 190, 4)], 1 << 20)])
        (first,) = store.spilled._segments
        store.forget(1)  # half of the records are dead for good; a quarter may come back
        assert first not in store.spilled._segments
        store.undo(2)
        assert content(store) == want
        store.merge(2, [frame([(number, 0, 5, None) for number in range(1, 190, 4)], 1 << 20)])
        store.undo(2)
        assert content(store) == want


@contextmanager
def store_that_must_empty() -> Iterator[ReadModifyWriteStore]:
    """All of its records have to leave as soon as they may."""
    with store_of(60_000) as store:
        for epoch in range(3):
            fill(store, range(190), epoch, epoch)
        assert store._budget is not None
        store._budget._memory_bytes = 0
        yield store


@pytest.mark.parametrize("failing", range(SHARDS))
def test_records_that_cannot_leave_stay_intact(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    with store_that_must_empty() as store:
        want = content(store)
        victim = dict(store.tables())[failing]
        real = Table.evict

        def fail(self: Table, rows: np.ndarray) -> None:
            if self is victim:
                raise MemoryError("no room")
            real(self, rows)

        monkeypatch.setattr(Table, "evict", fail)
        with pytest.raises(MemoryError):
            store.forget(99)
        assert content(store) == want
        monkeypatch.undo()
        store.forget(99)
        assert content(store) == want


def test_memory_that_ends_while_records_leave_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is asked for several times: any of these may fail."""
    with store_that_must_empty() as store:
        want = content(store)
        victim = dict(store.tables())[1]
        discard, empty, left = Table.evict, np.empty, [-1]

        def watched(self: Table, rows: np.ndarray) -> None:
            left[0] = failed if self is victim else -1
            discard(self, rows)
            left[0] = -1

        def failing(*given: Any, **named: Any) -> np.ndarray:
            left[0] -= 1
            if left[0] == -1:
                raise MemoryError("no room")
            made: np.ndarray = empty(*given, **named)
            return made

        for failed in range(20):
            with monkeypatch.context() as patched:
                patched.setattr(Table, "evict", watched)
                patched.setattr(np, "empty", failing)
                try:
                    store.forget(99)
                except MemoryError:
                    pass
                else:
                    break
            assert content(store) == want, f"allocation {failed}"
        assert 3 < failed < 19, "records, links, free rows, strings"
        assert content(store) == want


def test_a_spilled_record_that_is_removed_is_gone_for_good() -> None:
    """In one epoch it comes from disk and goes: the tombstone must still be written."""
    with store_of(0, removes=True) as store, store_of(0, removes=True) as copy:
        sections = []
        for epoch, numbers in enumerate([range(30), range(12)]):
            store.merge(epoch, [frame([(number, 0, 1, "x") for number in numbers], 1 << 20)])
            for shard, table in store.tables():
                store.remove(shard, table.changed_rows() if epoch else table.changed_rows()[:0])
            sections.append(store.delta())
            store.forget(epoch)
        want = {(number, 0) for number in range(12, 30)}
        assert content(store).keys() == want
        for shard in range(SHARDS):
            copy.restore(shard, [delta[shard] for delta in sections], 0)
        assert content(copy).keys() == want


def test_a_full_disk_is_reported_by_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with store_of(0) as store:
        fill(store, range(100), 0)

        def full(self: ScratchFile, array: np.ndarray, offset: int) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        store.merge(1, [frame([(number, 0, 1, None) for number in range(50)], 1 << 20)])
        want = content(store)
        monkeypatch.setattr(ScratchFile, "write", full)
        store.forget(1)
        assert content(store) == want
        store.spilled.wait_for_writes()
        with pytest.raises(OSError, match="no space"):
            store.merge(2, [frame([(150, 0, 1, None)], 1 << 20)])
        monkeypatch.undo()
        store.undo(2)
        assert content(store) == want


def test_a_budget_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="folder"):
        ReadModifyWriteStore(LAYOUT, [0], memory_bytes=1)


@pytest.mark.parametrize("reads", [mode.value for mode in ReadMode])
def test_a_segment_that_is_closed_while_it_is_read_ahead_gives_nothing_and_harms_nobody(reads: str) -> None:
    with store_of(0, tuning=Tuning(spilled=SpillTuning(reads=reads, hint_worth_s=0.0))) as store:
        fill(store, range(100), 0)
        store.spilled.wait_for_writes()
        (segment,) = store.spilled._segments
        segment.close()
        with pytest.raises((SegmentClosedError, OSError)):
            segment.copied(np.arange(100, dtype=np.int64))


@pytest.mark.parametrize("prefetch", ["on", "async-io"])
def test_hinted_records_of_the_write_back_buffer_need_not_be_read_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch, prefetch: str
) -> None:
    monkeypatch.setattr(SpilledRecords, "write_buffer", lambda self: None)  # not before it must be
    with store_of(30_000, tuning=Tuning(spilled=SpillTuning(prefetch=prefetch, hint_worth_s=0.0))) as store:
        fill(store, range(190), 0)
        rows, bounds = frame([(number, 0, 1, None) for number in range(190)], 1 << 20)
        assert store.spilled.buffered_bytes
        spilled = np.flatnonzero(store.spilled.may_hold(rows, bounds, 0))[:10]
        ends = np.searchsorted(spilled, bounds)
        some = Rows(rows.words[spilled], rows.heap)
        store.spilled.hint(some, ends, 0, 1)
        if prefetch == "async-io":
            assert store.spilled.reads.nbytes == 0, "who reads at once needs no copy"
            return
        store.spilled._buffer.finish(store.spilled._segments)
        assert store.disk_bytes and not store.spilled.buffered_bytes
        store.merge(1, [(some, ends)])
        reported = store.spilled.reads.metrics()
        assert (reported["spilledHits"], reported["spilledMisses"], reported["spilledWaitMs"]) == (10, 0, 0)
        assert (reported["hintsReceived"], reported["hintsWasted"], reported["hintsPending"]) == (0, 0, 0)


@pytest.mark.parametrize("hinted", ["before", "meanwhile"])
def test_what_was_fetched_ahead_is_not_read_again_when_its_segment_is_compacted(hinted: str) -> None:
    """Nor what was hinted in the meantime."""
    pauses = 0

    def pause() -> None:
        nonlocal pauses
        pauses += 1
        if hinted == "meanwhile" and pauses == 2:
            hint()

    with store_of(30_000, tuning=Tuning(spilled=SpillTuning(hint_worth_s=0.0, pause=pause))) as store:
        for epoch in range(3):
            fill(store, range(190), epoch, epoch)
        store.forget(2)
        store.spilled.wait_for_writes()
        rows, bounds = frame([(number, 0, 1, None) for number in range(190)], 1 << 20)
        spilled = np.flatnonzero(store.spilled.may_hold(rows, bounds, 0))[:20]
        ends, some = np.searchsorted(spilled, bounds), Rows(rows.words[spilled], rows.heap)

        def hint() -> None:
            store.spilled.hint(some, ends, 0, 9)
            store.spilled.reads.drain()

        if hinted == "before":
            hint()
        want = content(store)
        old = list(store.spilled._segments)
        store.spilled._replace(old)
        store.spilled.reads.keep_only([segment.uid for segment in store.spilled._segments])
        assert pauses >= 2 and not set(old) & set(store.spilled._segments) and content(store) == want
        store.merge(9, [(some, ends)])
        reported = store.spilled.reads.metrics()
        assert (reported["spilledHits"], reported["spilledMisses"], reported["spilledLate"]) == (20, 0, 0)
        assert reported["hintsWasted"] == reported["hintsPending"] == 0
