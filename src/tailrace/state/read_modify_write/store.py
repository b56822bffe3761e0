"""The read-modify-write store: one ``Table`` per shard, one undo log per epoch, and spilled records on disk.

Invariants
- ``merge`` opens an epoch; at most ``undo_epochs`` of them can be undone, newest first (``epochs``).
- ``delta`` is the new full value of every record touched in the newest epoch; together with the horizon (every record
  of an earlier pane is gone) it carries a restored copy from one epoch to the next. A store that ``removes`` single
  records writes a tombstone for each: the key, and no accumulator. Such a store must never keep a record like that.
- Memory: with ``memory_bytes``, the tables are a write-back cache of the records on disk (``spilled``): beyond the
  budget records are evicted (``memory_budget``), and a batch loads the spilled records that it touches, and only those.
  Whoever reads ``tables`` must read ``spilled``; ``scan``, ``probes`` and ``changes`` read both.

Threads: one at a time; inside, different shards are merged at once by a small pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa

from tailrace.env.transit_memory import TransitMemory
from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.part_pool import PartPool
from tailrace.state.read_modify_write.batch_merges import with_states_merged
from tailrace.state.read_modify_write.changes import NewestChanges
from tailrace.state.read_modify_write.epochs import UndoableEpochs
from tailrace.state.read_modify_write.hinted_rows import HintedRows, rows_of_hashes
from tailrace.state.read_modify_write.memory_budget import MemoryBudget
from tailrace.state.read_modify_write.shard_turns import Frames, shard_turns
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.epoch_sections import EpochSections
from tailrace.state.sections.tables import by_shard, copied, fill_table
from tailrace.state.segments.point_reads import warm_up_point_rows
from tailrace.state.segments.positions import SegmentLookup
from tailrace.state.segments.segment import warm_up_fingerprints
from tailrace.state.segments.spilled_records import SpilledRecords
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

_ROW_BYTES_BESIDE = 48
"""What a record takes in a table beside its words: index, links, undo log."""


class ReadModifyWriteStore:
    def __init__(
        self,
        layout: RecordLayout,
        shards: Iterable[int],
        threads: int = 2,
        undo_epochs: int = 2,
        *,
        removes: bool = False,
        noted_word: int | None = None,
        spill_changes: bool = False,
        transit: TransitMemory | None = None,
        memory_bytes: int | None = None,
        folder: str | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """Without ``memory_bytes`` everything is kept in memory; with it, ``folder`` is where the rest goes.

        ``noted_word``: of records that a merge makes new, this word and the hash are kept in ``made``.
        ``spill_changes``: also what undoable epochs have changed may go to disk; for callers that take the newest
        epoch's changes from ``changes.pieces``, and not from ``changes.in_tables``.
        ``transit``: where deltas are counted.
        """
        if memory_bytes is not None and folder is None:
            raise ValueError("a budget of memory needs a folder for what does not fit")
        self.layout = layout
        self.spilled = SpilledRecords(layout, folder or "", memory_bytes=memory_bytes or 0, tuning=tuning)
        self._budget = None if memory_bytes is None else MemoryBudget(memory_bytes, self.spilled, changes=spill_changes)
        self._spill_changes = spill_changes
        self._transit, self._folder = transit, folder
        self._removes = removes
        self._policy = tuning.spilled.policy
        self._tables = {shard: Table(layout, stagger=shard, policy=tuning.spilled.policy) for shard in shards}
        self._pool = PartPool(threads, "tailrace-state")
        self._shard_count = 0  # of the query, as the last frames had it
        self._epochs = UndoableEpochs(undo_epochs, self.spilled)
        self._hints = HintedRows()
        self.changes = NewestChanges(layout, self._tables, self._epochs, self.spilled, self._pool)
        self._noted_word = noted_word
        self.made: dict[int, np.ndarray] = {}  # by shard, int64[n, 2] of the noted word and the hash: the last merge's

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self._tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self._tables.values()) + self.spilled.rows(self.horizon)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(table.nbytes for table in self._tables.values()) + self.spilled.nbytes

    @property
    def disk_bytes(self) -> int:
        return self.spilled.disk_bytes

    def metrics(self) -> Metrics:
        return self.spilled.metrics(self.horizon)

    @property
    def newest_epoch(self) -> int | None:
        return self._epochs.newest

    @property
    def horizon(self) -> int:
        """Records of earlier panes have expired."""
        return self._epochs.horizon

    # Epochs ----------------------------------------------------------------------------------------------------------

    def merge(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Open ``epoch`` and merge partials sorted by shard: pairs of rows and ``bounds[shards + 1]``."""
        self.open(epoch)
        self.merge_more(frames)

    def merge_more(
        self,
        frames: Sequence[tuple[Rows, np.ndarray]],
        *,
        replace: bool = False,
        fresh: bool = False,
        hold: bool = True,
    ) -> None:
        """Merge partials in the open epoch; with ``replace`` put records in place of what is there.

        ``fresh``: the caller knows that no record with these keys is on disk, so that none is looked for there.
        Without ``hold`` row numbers stay what they are, and ``hold_budget`` is the caller's to call.
        """
        epoch = self._epochs.open_epoch
        self.changes.forget_copies()
        self.made = {}
        counts = np.zeros(max(self._tables, default=-1) + 2, np.int64)
        for _, bounds in frames:
            self._shard_count = len(bounds) - 1
            counts[: len(bounds) - 1] += np.diff(bounds)[: len(counts)]
        touched = [shard for shard in self._tables if counts[shard]]
        rows_owned = int(counts[touched].sum())
        if rows_owned != sum(len(rows) for rows, _ in frames):
            raise ValueError("frames hold rows of shards that are not kept here")
        reading = bool(self.spilled) and not fresh

        def merge_shard(
            shard: int, turn: Sequence[tuple[Rows, np.ndarray]], brought: Sequence[tuple[Rows, np.ndarray]]
        ) -> None:
            table = self._epochs.logged(self._tables[shard], int(counts[shard]))
            self._put_in(table, shard, brought)
            came = 0 if self._noted_word is None else len(table.made_rows())
            for rows, bounds in turn:
                lo, hi = int(bounds[shard]), int(bounds[shard + 1])
                if lo < hi:
                    table.merge(rows.words, rows.heap, lo, hi, replace=replace, states_merged=batch)
            if self._noted_word is not None:
                new = table.made_rows()[came:]
                made = np.stack([table.word(new, self._noted_word), table.word(new, HASH)], axis=1)
                self.made[shard] = np.concatenate([self.made[shard], made]) if shard in self.made else made

        batch = bool(self.layout.batch_merges) and not replace
        in_turns = reading or (hold and not fresh and self._is_near_budget(rows_owned))
        for turn, reads in self._turns(frames, reading) if in_turns else [(frames, False)]:
            mine = [shard for shard in touched if any(bounds[shard] < bounds[shard + 1] for _, bounds in turn)]
            brought = self._taken(epoch, turn) if reads else []
            if batch and any(len(rows) for rows, _ in turn):
                self._pool.each(partial(merge_shard, turn=[], brought=brought), mine, rows_owned)
                turn, brought = [with_states_merged(turn, self._tables, self._shard_count, self.layout)], []
            self._pool.each(partial(merge_shard, turn=turn, brought=brought), mine, rows_owned)
            if in_turns and hold and self._spill_changes:
                self._evict()
        if hold:
            self.hold_budget()

    def _is_near_budget(self, rows: int) -> bool:
        """Whether merging so many rows might exceed the budget, and changes can be evicted meanwhile."""
        if self._budget is None or not self._spill_changes:
            return False
        return self._budget.is_near(self._tables, rows * (8 * self.layout.words + _ROW_BYTES_BESIDE))

    def _turns(self, frames: Frames, reading: bool) -> Iterator[tuple[Frames, bool]]:
        """The frames in turns, and whether records of them may have to be read."""
        if not reading or not self.spilled.reads.async_io:
            for turn in shard_turns(frames):
                yield turn, bool(self.spilled)  # an eviction after the turn before may have been the first
            return
        # Rows whose records are on disk wait for these while all others go on.
        at_once, later = self.read_turns(frames)
        yield at_once, False
        yield later, True

    def read_turns(self, frames: Sequence[tuple[Rows, np.ndarray]]) -> Sequence[Sequence[tuple[Rows, np.ndarray]]]:
        """The frames; with async-io first the rows that need no read, then the others, whose reads begin here.

        All rows of a key and pane are in one of the two.
        """
        if not self.spilled or not self.async_io:
            return [frames]
        parts: list[list[tuple[Rows, np.ndarray]]] = [[], []]
        for rows, bounds in frames:
            waits = self.spilled.may_hold(rows, bounds, self.horizon)
            self.spilled.hint(rows, bounds, self.horizon, self.spilled.reads.time)
            for part, mask in zip(parts, (~waits, waits), strict=True):
                ends = np.concatenate([[0], np.cumsum(mask)])
                part.append((Rows(np.ascontiguousarray(rows.words[mask]), rows.heap), ends[bounds]))
        return parts

    @property
    def async_io(self) -> bool:
        """Whether rows that need spilled records are to wait while others go on."""
        return self.spilled.reads.async_io

    def begin_reads(self, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """With async-io, begin to read the spilled records that these rows will be looked up for, in the open epoch.

        For callers that must keep the order of rows, which ``read_turns`` does not. The rows may have another layout
        with the same keys.
        """
        if self.spilled and self.async_io:
            for rows, bounds in frames:
                self.spilled.hint(rows, bounds, self.horizon, self.spilled.reads.time)

    def _taken(self, epoch: int, frames: Sequence[tuple[Rows, np.ndarray]]) -> list[tuple[Rows, np.ndarray]]:
        """The spilled records that the frames touch, from now on ours: sorted by shard, and bounds."""
        return [self.spilled.take_all(epoch, rows, bounds, self.horizon) for rows, bounds in frames]

    def take_spilled(self, found: SegmentLookup, chosen: np.ndarray) -> None:
        """Records that ``probes.current`` has found on disk, none twice: the chosen ones are ours from now on.

        In the open epoch. The caller merges their new values, as ``fresh``; the others are cached.
        """
        self.spilled.take_positions(self._epochs.open_epoch, found.positions.where(chosen))
        self.spilled.cache_copies(found, ~chosen)

    def _put_in(self, table: Table, shard: int, brought: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Put spilled records into the shard's table, under its open log."""
        for rows, bounds in brought:
            lo, hi = int(bounds[shard]), int(bounds[shard + 1])
            if lo < hi:
                table.merge(rows.words, rows.heap, lo, hi, replace=True)

    def load(self, frames: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Load the spilled records with the keys of these rows into the tables, in the open epoch.

        The rows may have another layout with the same keys.
        """
        if not self.spilled:
            return
        brought = self._taken(self._epochs.open_epoch, frames)
        for shard, table in self.tables():
            if any(bounds[shard] < bounds[shard + 1] for _, bounds in brought):
                self._put_in(self._epochs.logged(table), shard, brought)

    # Hints -----------------------------------------------------------------------------------------------------------

    @property
    def wants_hints(self) -> bool:
        """Whether hints are of use: some records are on disk, and reading them is slow enough."""
        return bool(self.spilled) and self.spilled.reads.wants_hints

    def hint(self, rows: Rows, bounds: np.ndarray, epoch: int) -> None:
        """Rows of a batch that is still to come, sorted by shard: begin to fetch the spilled records it will touch.

        Records in memory that it will touch stay there. Not beside any other call, but for those of ``reads`` and of a
        compaction that pauses.
        """
        self._hints.add(rows, bounds, epoch)
        self.spilled.hint(rows, bounds, self.horizon, epoch)

    def hint_hashes(self, hashes: np.ndarray, panes: np.ndarray | None, epoch: int) -> None:
        """As ``hint``, of keys of which only the hashes are known. ``panes``: None where records have none."""
        if self._shard_count:
            rows, bounds = rows_of_hashes(hashes, panes, self.layout, self._shard_count)
            self.spilled.hint(rows, bounds, self.horizon, epoch)

    def with_hashes(
        self, shard: int, hashes: np.ndarray, wanted: Callable[[np.ndarray], np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of the records with these hashes (each named once) those that are wanted by their words: their row numbers.

        Where they lie on disk they are brought in, in the open epoch. Also gives the words of the others.
        """
        table = self._tables[shard]
        rows = table.with_hashes(hashes)
        words = table.words(rows)
        chosen = wanted(words)
        found, others = [rows[chosen]], [words[~chosen]]
        for spilled in self.spilled.with_hashes(shard, hashes, self.horizon):
            chosen = wanted(spilled.rows.words)
            others.append(spilled.rows.words[~chosen])
            if chosen.any():
                taken = self.spilled.take_found(self._epochs.open_epoch, spilled, chosen)
                self._epochs.logged(table).merge(taken.words, taken.heap, 0, len(taken), replace=True)
                found.append(table.locate(taken))
        return np.concatenate(found), np.concatenate(others)

    def open(self, epoch: int) -> None:
        """Later changes belong to ``epoch``."""
        self._epochs.open(epoch)
        self.changes.forget_copies()
        self._hints.drop_until(epoch)
        self.spilled.reads.begin(epoch)

    def undo(self, epoch: int) -> None:
        """Back to before ``epoch`` was opened; nothing happens where it was not."""
        self.changes.forget_copies()
        self._epochs.undo(epoch)
        self._try_to_hold_budget()

    def forget(self, epoch: int) -> None:
        """Epochs up to ``epoch`` will never be undone."""
        self._epochs.forget(epoch)
        self._try_to_hold_budget()

    def remove(self, shard: int, rows: np.ndarray) -> None:
        """Take single records of a shard away, as part of the open epoch."""
        if not self._removes:
            raise ValueError("this store was not made to remove single records: its delta would not carry it")
        if len(rows):
            self.changes.forget_copies()
            self._epochs.logged(self._tables[shard]).remove(rows)

    def expire(self, horizon: int) -> None:
        """Drop every pane that starts before ``horizon``, as part of the open epoch."""
        if horizon <= self.horizon:
            return
        for table in self._tables.values():
            panes = table.panes(horizon)
            if len(panes):
                self._epochs.logged(table).expire(panes)
        self._epochs.horizon = horizon

    # Memory ----------------------------------------------------------------------------------------------------------

    def hold_budget(self) -> None:
        """Evict records where memory is beyond its budget. Row numbers change."""
        if self._budget is None:
            return
        self.spilled.raise_failed_write()
        self.spilled.compact(self._epochs.lasting_horizon)
        self._evict()

    def _evict(self) -> None:
        assert self._budget is not None
        self._budget.hold(
            self._tables, self.newest_epoch or 0, lambda: self._hints.give_to(self.tables()), self._epochs.logs
        )

    def _try_to_hold_budget(self) -> None:
        """A finished step must not fail because a disk is full: the next batch will raise."""
        with suppress(OSError):
            self.hold_budget()

    # Reading ---------------------------------------------------------------------------------------------------------

    def tables(self) -> list[tuple[int, Table]]:
        return sorted(self._tables.items())

    def gather(self, parts: Sequence[tuple[Table, np.ndarray]]) -> Rows:
        """Rows of several tables together, column by column."""
        return copied([(-1, table, rows) for table, rows in parts], self.layout, self._pool).rows

    def delta(self) -> EpochSections:
        """By shard, the records that the newest epoch touched and left, and tombstones of those it removed."""
        if self._removes:
            # A record that came from disk looks made by this epoch: a tombstone too many does no harm.
            sections = self.changes.sections_with_tombstones(made_too=self._budget is not None)
        else:
            sections = self.changes.sections()
        return EpochSections(sections, self._transit, self._folder)

    @property
    def in_memory(self) -> bool:
        """Whether all records are."""
        return not self.spilled

    def snapshot(self, shards: Sequence[int]) -> dict[int, pa.RecordBatch]:
        """By shard, a section of all records. For a store that is in memory."""
        parts = [(shard, self._tables[shard], self._tables[shard].all_rows()) for shard in shards]
        return by_shard(copied([part for part in parts if len(part[2])], self.layout, self._pool), self.layout)

    # Shards ----------------------------------------------------------------------------------------------------------

    def restore(
        self,
        shard: int,
        batches: Iterable[pa.RecordBatch],
        horizon: int,
        look: Callable[[Table], None] | None = None,
    ) -> None:
        """Build a shard from its sections, oldest first. While it is built it comes on top of the budget.

        ``look`` sees the table while all of its records are in memory.
        """
        if shard in self._tables:
            self.drop_shard(shard)
        self._tables[shard] = fill_table(
            self.layout, shard, batches, horizon, removes=self._removes, policy=self._policy
        )
        if look is not None:
            look(self._tables[shard])
        self._epochs.horizon = max(self.horizon, horizon)
        self.hold_budget()

    def restore_more(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        """Other keys of a shard of which ``restore`` has had some: the budget is held after each part."""
        part = fill_table(self.layout, shard, batches, horizon, removes=self._removes, policy=self._policy)
        rows, table = part.copy(part.all_rows()), self._tables[shard]
        del part
        table.begin(0)
        table.merge(rows.words, rows.heap, 0, len(rows), replace=True)
        table.forget()
        self._epochs.horizon = max(self.horizon, horizon)
        self.hold_budget()

    def drop_shard(self, shard: int) -> None:
        self.changes.forget_copies()
        self.spilled.drop_shard(shard)
        self._epochs.drop(self._tables.pop(shard))

    def close(self) -> None:
        self.spilled.close()
        self._pool.close()


def warm_up_spilled_records(layout: RecordLayout) -> None:
    """Compile the kernels that only spilled records need, so that no epoch waits for a compiler."""
    warm_up_point_rows(layout)
    warm_up_fingerprints()
