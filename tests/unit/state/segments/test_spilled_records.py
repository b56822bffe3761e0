"""A store larger than its memory, against a dictionary: any order of epochs, undoing, closing, restoring."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tailrace.api.options import Prefetch, ReadMode
from tailrace.env.files import shaped_reads
from tailrace.env.files.scratch import ScratchFile, temporary_folder
from tailrace.state.cache.policies import POLICIES
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, Merge, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.compaction import compact_records
from tailrace.state.sections.sections import to_section
from tailrace.state.segments import (
    compaction as compaction,
)
from tailrace.state.segments import (
    compaction_groups as compaction_groups,
)
from tailrace.state.segments import (
    point_reads as point_rows,
)
from tailrace.state.segments import (
    segment as segment_module,
)
from tailrace.state.segments.segment import SegmentClosedError
from tailrace.state.segments.spilled_records import SpilledRecords
from tailrace.state.tuning import SpillTuning, Tuning
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", STRING)], [(Merge.ADD, BIGINT), (Merge.MAX, STRING)], ansi=False)
SHARDS = 3
FOREVER = 2**63 - 1
Key = tuple[int, int]  # number of the key, pane
Value = tuple[int, str | None]

partials = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(-5, 5), st.one_of(st.none(), st.text(max_size=9))),
    max_size=40,
)
# Whole ranges of keys at once: small samples alone would hardly ever fill a budget.
sweeps = st.tuples(st.integers(0, 60), st.integers(0, 120), st.integers(0, 3)).map(
    lambda t: [(number, t[2], 1, None) for number in range(t[0], t[0] + t[1])]
)


def text_of(number: int) -> str | None:
    return None if number == 7 else "k" * (number % 5) + str(number)


def frame(rows: list[tuple], hashes: int) -> tuple[Rows, np.ndarray]:
    """Rows by shard. With few ``hashes`` only the keys themselves can tell records apart."""
    rows = sorted(rows, key=lambda row: row[0] % SHARDS)
    builder = RowsBuilder(len(rows), LAYOUT)
    spread = [(row[0] % hashes - hashes // 2) * (2**63 // hashes) for row in rows]
    builder.words[:, HASH] = spread
    builder.words[:, PANE] = [row[1] for row in rows]
    key, total, largest = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array([text_of(row[0]) for row in rows], pa.string()), STRING, key.word, key.bit)
    builder.put(pa.array([row[2] for row in rows], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array([row[3] for row in rows], pa.string()), STRING, largest.word, largest.bit)
    shards = [row[0] % SHARDS for row in rows]
    return builder.finish(), np.searchsorted(shards, np.arange(SHARDS + 1)).astype(np.int64)


NUMBERS = {text_of(number): number for number in range(200)}


def as_dict(batch: pa.RecordBatch) -> dict[Key, Value]:
    found: dict[Key, Value] = {}
    for row in batch.to_pylist():
        key = (NUMBERS[row["k0"]], row["__pane"])
        assert key not in found, f"{key} twice"
        found[key] = (row["a0"], row["a1"])
    return found


def content(store: ReadModifyWriteStore) -> dict[Key, Value]:
    parts = []
    for shard, table in store.tables():
        hot = table.copy(table.rows_of(table.panes(FOREVER)))
        panes = store.spilled.panes(shard, store.horizon, FOREVER)
        parts += [hot, store.spilled.rows_of(shard, panes)]
    return as_dict(to_section(concat_rows(parts, LAYOUT), LAYOUT))


def merged(old: Value | None, total: int, largest: str | None) -> Value:
    if old is None:
        return total, largest
    both = [value.encode() for value in (old[1], largest) if value is not None]
    return old[0] + total, max(both).decode() if both else None


class Machine(RuleBasedStateMachine):
    """``past``: (epoch, state before, horizon before, keys it touched), of the epochs that can be undone."""

    @initialize(
        budget=st.sampled_from([0, 12_000, 30_000]),
        hashes=st.sampled_from([1, 5, 1 << 20]),
        tight=st.booleans(),
        policy=st.sampled_from(POLICIES),
        prefetch=st.sampled_from([mode.value for mode in Prefetch]),
        slow=st.booleans(),
        reads=st.sampled_from([mode.value for mode in ReadMode]),
        cut=st.booleans(),
    )
    def start(
        self, budget: int, hashes: int, tight: bool, policy: str, prefetch: str, slow: bool, reads: str, cut: bool
    ) -> None:
        """``cut``: what is read and rewritten at a time is small enough for several pieces of a pane."""
        self.patches = pytest.MonkeyPatch()
        if cut:
            self.patches.setattr(compaction, "PIECE_BYTES", 5_000)
            self.patches.setattr(segment_module, "READ_BYTES", 500)
            self.patches.setattr(point_rows, "READ_BYTES", 50_000)
            self.patches.setattr(compaction_groups, "COMPACTION_GROUP_BYTES", 4_000)
        if slow:
            self.patches.setenv(shaped_reads.VARIABLE, shaped_reads.shaped(1e-6))
        self.tuning = SpillTuning(policy=policy, prefetch=prefetch, reads=reads, hint_worth_s=0.0)
        self.folder = temporary_folder()
        self.path = self.folder.__enter__()
        self.budget, self.hashes, self.amplification = budget, hashes, 1.1 if tight else 1.5
        self.store = self.fresh(range(SHARDS))
        self.model: dict[Key, Value] = {}
        self.horizon = 0
        self.epoch = 0
        self.past: list[tuple[int, dict[Key, Value], int, set[Key]]] = []
        self.stamped: set[Key] = set()  # keys of undone epochs: their stamps keep them in memory for a while
        self.sections: list[tuple[int, dict[int, pa.RecordBatch]]] = []

    def fresh(self, shards: range | list[int]) -> ReadModifyWriteStore:
        return ReadModifyWriteStore(
            LAYOUT,
            shards,
            threads=1,
            memory_bytes=self.budget,
            folder=self.path,
            tuning=Tuning(max_space_amplification=self.amplification, spilled=self.tuning),
        )

    @rule(rows=st.one_of(partials, sweeps), wait=st.booleans())
    def hint(self, rows: list[tuple], wait: bool) -> None:
        """Of rows that may come, or not."""
        if self.store.wants_hints:
            self.store.hint(*frame([row for row in rows if row[1] >= self.horizon], self.hashes), self.epoch + 1)
            if wait:
                self.store.spilled.reads.drain()

    @rule(rows=st.one_of(partials, sweeps), more=partials, close_to=st.sampled_from([0, 0, 0, 0, 1, 2]))
    def run_epoch(self, rows: list[tuple], more: list[tuple], close_to: int) -> None:
        self.epoch += 1
        frames = [[row for row in part if row[1] >= self.horizon] for part in (rows, more)]
        before, touched = dict(self.model), set()
        for number, pane, total, largest in frames[0] + frames[1]:
            self.model[number, pane] = merged(self.model.get((number, pane)), total, largest)
            touched.add((number, pane))
        self.store.merge(self.epoch, [frame(part, self.hashes) for part in frames])
        self.past = [*self.past[-1:], (self.epoch, before, self.horizon, touched)]
        if close_to > self.horizon:
            self.store.expire(close_to)
            self.horizon = close_to
            touched.update(key for key in self.model if key[1] < close_to)
            self.model = {key: value for key, value in self.model.items() if key[1] >= close_to}
        delta = self.store.delta()
        written = [as_dict(batch) for batch in delta.values()]
        assert {k: v for part in written for k, v in part.items()} == {
            k: self.model[k] for k in touched if k[1] >= self.horizon
        }
        self.sections.append((self.epoch, delta))

    @precondition(lambda self: self.past)
    @rule(how_many=st.integers(1, 2))
    def undo(self, how_many: int) -> None:
        for _ in range(min(how_many, len(self.past))):
            epoch, self.model, self.horizon, touched = self.past.pop()
            self.stamped |= touched
            self.store.undo(epoch)
            self.sections = [each for each in self.sections if each[0] < epoch]

    @precondition(lambda self: self.past)
    @rule(all_=st.booleans())
    def forget(self, all_: bool) -> None:
        self.store.forget(self.past[-1 if all_ else 0][0])
        self.past = [] if all_ else self.past[1:]

    @precondition(lambda self: not self.past)
    @rule(compact=st.booleans())
    def restore(self, compact: bool) -> None:
        self.store.close()
        self.store = self.fresh([])
        for shard in range(SHARDS):
            self.store.restore(shard, self.sections_of(shard, compact), self.horizon)

    @precondition(lambda self: not self.past)
    @rule(shard=st.integers(0, SHARDS - 1))
    def move_a_shard(self, shard: int) -> None:
        self.store.drop_shard(shard)
        assert content(self.store) == {k: v for k, v in self.model.items() if k[0] % SHARDS != shard}
        self.store.restore(shard, self.sections_of(shard, False), self.horizon)

    def sections_of(self, shard: int, compact: bool) -> list[pa.RecordBatch]:
        batches = [delta[shard] for _, delta in self.sections if shard in delta]
        return [compact_records(LAYOUT, batches, self.horizon)] if compact and batches else batches

    @invariant()
    def equals_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        assert content(self.store) == self.model
        assert self.store.rows == len(self.model)

    @invariant()
    def holds_its_budget(self) -> None:
        if not hasattr(self, "store"):
            return
        if not self.past:
            self.stamped = set()
        undoable = set().union(self.stamped, *(touched for *_, touched in self.past))
        # Records that become evictable all at once may exceed the budget in the write-back buffer until it is written.
        self.store.spilled.wait_for_writes()
        if self.store.nbytes > self.budget:
            assert sum(table.rows for _, table in self.store.tables()) <= len(undoable)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.patches.undo()
            self.store.close()
            assert list(Path(self.path).iterdir()) == []
            self.folder.__exit__(None, None, None)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


# Single facts --------------------------------------------------------------------------------------------------------


@contextmanager
def store_of(budget: int, **options: Any) -> Iterator[ReadModifyWriteStore]:
    with temporary_folder() as folder:
        store = ReadModifyWriteStore(LAYOUT, range(SHARDS), 1, memory_bytes=budget, folder=folder, **options)
        yield store
        store.close()


def fill(store: ReadModifyWriteStore, numbers: range, epoch: int, pane: int = 0) -> None:
    store.merge(epoch, [frame([(number, pane, 1, "x" * 20) for number in numbers], 1 << 20)])
    store.forget(epoch)


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
        store.spilled._finish_writing()
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
