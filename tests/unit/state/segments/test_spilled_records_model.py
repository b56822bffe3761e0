"""A store larger than its memory, against a dictionary: any order of epochs, undoing, closing, restoring."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.stores.spilled import LAYOUT, SHARDS, Key, Value, as_dict, content, frame
from tailrace.api.options import Prefetch, ReadMode
from tailrace.commit import shard_pieces
from tailrace.commit.shard_pieces import in_pieces
from tailrace.env.files import shaped_reads
from tailrace.env.files.scratch import temporary_folder
from tailrace.state.cache.policies import POLICIES
from tailrace.state.read_modify_write import shard_turns
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.rows import plain
from tailrace.state.sections.compaction import compact_records
from tailrace.state.sections.sections import to_section
from tailrace.state.segments import compaction, compaction_groups, point_reads, spilled_records
from tailrace.state.segments import segment as segment_module
from tailrace.state.tuning import SpillTuning, Tuning

partials = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(-5, 5), st.one_of(st.none(), st.text(max_size=9))),
    max_size=40,
)
# Whole ranges of keys at once: small samples alone would hardly ever fill a budget.
sweeps = st.tuples(st.integers(0, 60), st.integers(0, 120), st.integers(0, 3)).map(
    lambda t: [(number, t[2], 1, None) for number in range(t[0], t[0] + t[1])]
)


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
        changes=st.booleans(),
    )
    def start(
        self,
        budget: int,
        hashes: int,
        tight: bool,
        policy: str,
        prefetch: str,
        slow: bool,
        reads: str,
        cut: bool,
        changes: bool,
    ) -> None:
        """``cut``: what is read and rewritten at a time is small enough for several pieces of a pane.

        ``changes``: what undoable epochs have changed is evicted, too.
        """
        self.patches = pytest.MonkeyPatch()
        self.changes = changes
        if cut:
            self.patches.setattr(shard_turns, "TURN_ROWS", 8)
            self.patches.setattr(spilled_records, "_PIECE_BYTES", 500)
            self.patches.setattr(compaction, "PIECE_BYTES", 5_000)
            self.patches.setattr(segment_module, "READ_BYTES", 500)
            self.patches.setattr(point_reads, "READ_BYTES", 50_000)
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
            spill_changes=self.changes,
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
        pieces = [as_dict(to_section(plain(rows), LAYOUT)) for rows in self.store.changes.pieces()]
        assert {k: v for part in pieces for k, v in part.items()} == {k: self.model[k] for k in touched}
        assert self.store.changes.count() == sum(map(len, pieces)) == len(touched)
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
    @rule(compact=st.booleans(), pieces=st.booleans())
    def restore(self, compact: bool, pieces: bool) -> None:
        self.store.close()
        self.store = self.fresh([])
        for shard in range(SHARDS):
            sections = self.sections_of(shard, compact)
            first, *more = in_pieces(enumerate(sections), len(sections), shard_pieces.PIECE_BYTES * 3 * pieces)
            self.store.restore(shard, first, self.horizon)
            for piece in more:
                self.store.restore_more(shard, piece, self.horizon)

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
        if self.changes and not self.budget and not self.stamped:
            # Nothing was in memory when an epoch began, so all that it left was made by it, or brought from disk.
            assert sum(table.rows for _, table in self.store.tables()) == 0
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
