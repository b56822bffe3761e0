"""One shard's hash table of state records, with an undo log per epoch (`undo_logs`).

Invariants
- Every change goes through ``merge``, ``remove`` or ``expire`` under an open ``UndoLog``; undoing the logs newest first
  restores the table exactly, byte strings included.
- A row number stays with its record until the log under which the record was removed is forgotten, or the log that
  made it is undone, or ``evict`` compacts the table.
- ``evict`` is no change of the state: it is for records that are in a segment from then on. No log knows them, so that
  there is nothing to undo; or a log has made them and no later one has changed them: then that log forgets them, and
  whoever has the segment drops them from there when the log is undone.
- Shards start from different capacities (``stagger``), so that hash-balanced shards do not all grow in the same epoch:
  the work of growing (``arrays``) is spread over a whole doubling of the state.

Threads: one at a time.
"""

from __future__ import annotations

import numpy as np

from tailrace.errors import SumOverflowError
from tailrace.state.hash_table import kernels as tk
from tailrace.state.hash_table import lookup_kernels as lk
from tailrace.state.hash_table import session_kernels as sk
from tailrace.state.hash_table import upkeep_kernels as uk
from tailrace.state.hash_table.arrays import FIRST_ROWS, TableArrays
from tailrace.state.hash_table.batch_merge import copied_rows, merge_states
from tailrace.state.hash_table.eviction import EvictionPolicy
from tailrace.state.hash_table.undo_logs import UndoLogs, grown
from tailrace.state.layout import PANE, VALID, RecordLayout
from tailrace.state.rows.rows import Rows
from tailrace.state.rows.value_kernels import copy_out, heap_needed

_STAGGER_STEPS = 16
_NO_OVERRIDE = np.empty(0, np.int64)
_FOREVER = 2**63 - 1


class Table:
    def __init__(
        self, layout: RecordLayout, stagger: int = 0, rows_expected: int = 0, policy: str = "timestamp"
    ) -> None:
        self.layout = layout
        self._eviction = EvictionPolicy(policy)
        rows = int(FIRST_ROWS * 2 ** (stagger % _STAGGER_STEPS / _STAGGER_STEPS))
        while rows < rows_expected:
            rows *= 2
        self._arrays = TableArrays(layout, rows)
        self._undo = UndoLogs(self._arrays.counters, layout.words)

    @property
    def rows(self) -> int:
        return int(self._arrays.counters[tk.LIVE])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held for live state and for undoing; freshly grown, untouched room is not counted."""
        return self._arrays.nbytes + self._eviction.nbytes + self._undo.nbytes

    # Changing --------------------------------------------------------------------------------------------------------

    def begin(self, rows_expected: int) -> None:
        """Open a new undo log; later changes belong to it."""
        arrays = self._arrays
        if arrays.counters[tk.ARENA_WASTE] * 2 > arrays.counters[tk.ARENA_END] > 1 << 16:
            self.compact()
        self._undo.open(rows_expected)

    def merge(
        self,
        rows: np.ndarray,
        heap: np.ndarray,
        lo: int,
        hi: int,
        *,
        replace: bool = False,
        states_merged: bool = False,
    ) -> None:
        """Merge partials ``rows[lo:hi]``, or with ``replace`` put them in place of what is there.

        ``states_merged``: what batch merges do has been done, with the records of this table.
        """
        arrays = self._arrays
        if self.layout.batch_merges and not replace and not states_merged:
            merged = self._with_states_merged(rows, heap, lo, hi)
            rows, heap, lo, hi = merged.words, merged.heap, 0, len(merged)
        log, layout = self._undo.with_room(hi - lo), self.layout
        if len(log.expired):
            raise ValueError("merging after evicting, under one log, could not be undone: begin a new log first")
        at = lo
        while True:
            at = tk.merge_rows(
                rows, heap, at, hi, replace, log.stamp,
                layout.program, layout.bytes_words, layout.key_words, layout.key_mask,
                arrays.index, arrays.records, arrays.links, arrays.free, arrays.panes, arrays.arena,
                log.rows, log.images, arrays.counters,
            )  # fmt: skip
            status = arrays.counters[tk.STATUS]
            if status == tk.DONE:
                return
            if status == tk.NEED_ROWS:
                arrays.grow_rows()
            elif status == tk.NEED_ARENA:
                arrays.grow_arena(int(heap_needed(rows, heap, np.arange(at, hi), layout.bytes_words)))
            elif status == tk.NEED_PANES:
                arrays.grow_panes()
            else:
                overflowed = layout.accumulators[int(arrays.counters[tk.STATUS_AT])]
                raise SumOverflowError(f"a sum left the range of {overflowed.type}")

    def _with_states_merged(self, words: np.ndarray, heap: np.ndarray, lo: int, hi: int) -> Rows:
        """Partials whose values for batch merges have been merged: with those of the record, all in the first one."""
        rows = copied_rows(words, heap, np.arange(lo, hi), self.layout)
        numbers, firsts = key_numbers(rows, self.layout)
        at = self.locate(Rows(np.ascontiguousarray(rows.words[firsts]), rows.heap))
        known = np.flatnonzero(at >= 0)
        return merge_states(rows, numbers, self.copy(at[known]), known, self.layout)

    def panes(self, below: int) -> np.ndarray:
        """The panes that start before ``below``, ascending, as rows of (start, head, rows, dead)."""
        arrays = self._arrays
        out = np.empty((int(arrays.counters[tk.PANES]), tk.PANE_WORDS), np.int64)
        count = uk.list_panes(arrays.panes, below, out)
        out = out[:count]
        return out[np.argsort(out[:, 0], kind="stable")]

    def expire(self, panes: np.ndarray) -> None:
        """Drop all records of these panes (from ``panes``). Their rows are reused once the log is forgotten."""
        arrays = self._arrays
        log = self._undo.newest()
        uk.expire(panes, arrays.index, arrays.records, arrays.links, arrays.panes, arrays.counters)
        log.expired = np.concatenate([log.expired, panes])

    def remove(self, rows: np.ndarray) -> None:
        """Take single records away, by row number. Merging their keys again, even under the same log, starts anew."""
        arrays = self._arrays
        if not len(rows):
            return
        chosen = np.array(rows, np.int64)
        done = int(uk.remove(chosen, arrays.index, arrays.records, arrays.panes, arrays.counters))
        self._undo.newest().removed.append(chosen[:done])
        if done < len(chosen):
            raise ValueError(f"row {chosen[done]} was to be removed, but holds no record")

    def set_word(self, rows: np.ndarray, word: int, bit: int, value: int) -> None:
        """One word of records that the newest log has changed: undoing it brings back the whole record anyway."""
        arrays = self._arrays
        arrays.records[rows, word] = value
        arrays.records[rows, VALID] |= 1 << bit

    def undo(self) -> None:
        """Back to before the newest log was opened."""
        arrays = self._arrays
        log = self._undo.take_newest()
        while (arrays.counters[tk.PANES] + len(log.expired)) * 2 > len(arrays.panes):
            arrays.grow_panes()
        uk.undo(
            log.expired, log.removed_rows, log.arena_end, log.arena_waste, arrays.index, arrays.records, arrays.links,
            arrays.free, arrays.panes, log.rows, log.images, arrays.counters,
        )  # fmt: skip
        self._undo.reopen()

    def forget(self) -> None:
        """The oldest log will never be undone."""
        arrays = self._arrays
        log = self._undo.take_oldest()
        uk.release(
            log.expired, log.removed_rows, arrays.records, arrays.links, arrays.free, arrays.panes, arrays.arena,
            self.layout.bytes_words, arrays.counters,
        )  # fmt: skip

    def compact(self) -> None:
        """Drop the strings that nothing points to."""
        self._arrays.compact_strings(self._undo)

    # Reading ---------------------------------------------------------------------------------------------------------

    def rows_of(self, panes: np.ndarray) -> np.ndarray:
        """Row numbers of these panes, pane by pane, oldest row first."""
        arrays = self._arrays
        out = np.empty(int(panes[:, 2].sum()), np.int64)
        uk.pane_rows(panes, arrays.records, arrays.links, out)
        return out

    def all_rows(self) -> np.ndarray:
        """Row numbers of all records, pane by pane."""
        return self.rows_of(self.panes(_FOREVER))

    def changed_rows(self) -> np.ndarray:
        """Row numbers changed under the newest log and not removed since, in the order of their first change."""
        log = self._undo.newest()
        rows = log.touched_rows
        return rows[self.alive(rows)] if log.removed else rows

    @property
    def changed_count(self) -> int:
        """Of ``changed_rows``."""
        log = self._undo.newest()
        return len(self.changed_rows()) if log.removed else log.rows_end

    def removed_rows(self, *, made_too: bool = False) -> np.ndarray:
        """Row numbers removed under the newest log that were there before it; what they hold can still be copied.

        With ``made_too`` also those that the log itself had made.
        """
        log = self._undo.newest()
        gone = log.removed_rows
        if len(gone) and not made_too:
            gone = gone[~np.isin(gone, log.made_rows)]
        return gone

    def made_rows(self) -> np.ndarray:
        """Row numbers of the records that the newest log made, in that order, those too that it did not leave."""
        return self._undo.newest().made_rows

    def alive(self, rows: np.ndarray) -> np.ndarray:
        """Which of these row numbers hold a record."""
        there: np.ndarray = self._arrays.records[rows, self.layout.words] >= 0
        return there

    def word(self, rows: np.ndarray, word: int) -> np.ndarray:
        """One word of these records."""
        words: np.ndarray = self._arrays.records[rows, word]
        return words

    def words(self, rows: np.ndarray) -> np.ndarray:
        """All words of these records; strings as positions in the arena."""
        words: np.ndarray = self._arrays.records[rows, : self.layout.words]
        return words

    def locate(self, rows: Rows) -> np.ndarray:
        """The row numbers of the records with these keys and panes, -1 where there is none.

        Only what comes before the accumulators is looked at: rows may be of another layout with the same keys.
        """
        arrays = self._arrays
        out = np.empty(len(rows), np.int64)
        lk.locate(
            rows.words, rows.heap, 0, len(rows), self.layout.key_words, self.layout.key_mask,
            arrays.index, arrays.records, arrays.arena, out,
        )  # fmt: skip
        return out

    def with_hashes(self, hashes: np.ndarray, panes: np.ndarray | None = None) -> np.ndarray:
        """Row numbers of all records with one of these hashes, in the pane beside it (0 where none is given)."""
        arrays = self._arrays
        panes = np.zeros(len(hashes), np.int64) if panes is None else panes
        found, done = [np.empty(0, np.int64)], 0
        out, count = np.empty(len(hashes) + 16, np.int64), np.zeros(1, np.int64)
        while done < len(hashes):
            done = int(lk.with_hashes(hashes, panes, done, arrays.index, arrays.records, out, count))
            found.append(out[: count[0]].copy())
            if not count[0]:
                out = np.empty(2 * len(out), np.int64)
        return np.concatenate(found)

    def sessions(
        self, rows: np.ndarray, gap: int, low: int, high: int, *, ended: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """The records of the sessions that these are of, newest pane first, and ``offsets[sessions + 1]``.

        See ``session_kernels``. ``ended``: only sessions whose newest record is given.
        """
        arrays = self._arrays
        out, numbers = np.empty(len(rows) + 16, np.int64), np.empty(len(rows) + 16, np.int64)
        seen, ends = np.zeros(len(arrays.records), np.uint8), np.zeros(2, np.int64)
        scratch = np.empty((1, self.layout.words), np.int64)
        done = 0
        while True:
            done = sk.session_rows(
                rows, done, ended, gap, low, high, self.layout.key_words, self.layout.key_mask,
                arrays.index, arrays.records, arrays.arena, scratch, seen, out, numbers, ends,
            )  # fmt: skip
            if done == len(rows):
                break
            out, numbers = grown(out, 2 * len(out)), grown(numbers, 2 * len(out))
        count, sessions = int(ends[0]), int(ends[1])
        return out[:count], np.searchsorted(numbers[:count], np.arange(sessions + 1))

    def pane_starts(self, rows: np.ndarray) -> np.ndarray:
        starts: np.ndarray = self._arrays.records[rows, PANE]
        return starts

    def tombstones(self, rows: np.ndarray) -> np.ndarray:
        """Which of these records hold no accumulator."""
        empty: np.ndarray = self._arrays.records[rows, VALID] & ~self.layout.key_mask == 0
        return empty

    def rows_in_windows(self, targets: Rows, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For targets whose pane is a window's start: (row numbers of their key in that window, window starts).

        ``offsets``: of the window's panes, from its start on.
        """
        arrays = self._arrays
        room = len(targets) * len(offsets)
        rows, windows = np.empty(room, np.int64), np.empty(room, np.int64)
        count = uk.find_panes(
            targets.words, targets.heap, offsets, self.layout.key_words, self.layout.key_mask,
            arrays.index, arrays.records, arrays.arena, rows, windows,
        )  # fmt: skip
        return rows[:count], windows[:count]

    def missing(self, words: np.ndarray, heap: np.ndarray, lo: int, hi: int) -> np.ndarray:
        """Which of ``words[lo:hi]`` have no record here, as numbers of rows of ``words``."""
        arrays = self._arrays
        out = np.empty(hi - lo, np.int64)
        count = lk.missing(
            words, heap, lo, hi, self.layout.key_words, self.layout.key_mask,
            arrays.index, arrays.records, arrays.arena, out,
        )  # fmt: skip
        return out[:count]

    def outlasting(self, rows: Rows, panes: np.ndarray, word: int, after: int) -> np.ndarray:
        """Which of these rows have a record with their key, in one of the panes, whose ``word`` is beyond ``after``."""
        arrays = self._arrays
        out = np.zeros(len(rows), np.bool_)
        lk.outlasting(
            rows.words, rows.heap, panes, word, after, self.layout.key_words, self.layout.key_mask,
            arrays.index, arrays.records, arrays.arena, out,
        )  # fmt: skip
        return out

    def heap_needed(self, rows: np.ndarray) -> int:
        arrays = self._arrays
        if not self.layout.has_bytes:
            return 0
        return int(heap_needed(arrays.records, arrays.arena, rows, self.layout.bytes_words))

    def copy(self, rows: np.ndarray, panes: np.ndarray = _NO_OVERRIDE) -> Rows:
        """Records as partials, row by row, with other panes where given."""
        arrays = self._arrays
        out = Rows(np.empty((len(rows), self.layout.words), np.int64), np.empty(self.heap_needed(rows), np.uint8))
        copy_out(arrays.records, arrays.arena, rows, panes, self.layout.bytes_words, out.words, 0, out.heap, 0)
        return out

    def gather(self, rows: np.ndarray, out: Rows, at: int, heap_start: int) -> None:
        """Copy records to ``out.words[at:]``, which lies column by column, and their strings to ``heap_start`` on."""
        arrays = self._arrays
        uk.gather_columns(
            arrays.records, arrays.arena, rows, self.layout.bytes_words, out.words.T, at, out.heap, heap_start
        )

    # Eviction --------------------------------------------------------------------------------------------------------

    def hint(self, rows: Rows, epoch: int) -> None:
        """A later epoch will use these keys and panes."""
        at = self.locate(rows)
        self._eviction.hint(at[at >= 0], epoch, len(self._arrays.records))

    def eviction_candidates(self, count: int, epoch: int = 0) -> np.ndarray:
        """Row numbers of up to ``count`` records that no log has changed, pane by pane, chosen by the policy.

        ``epoch``: the newest that was applied.
        """
        arrays = self._arrays
        rows = self.all_rows()
        stamps = arrays.records[rows, self.layout.words]
        if self._undo.oldest_stamp is not None:
            free_to_go = stamps < self._undo.oldest_stamp
            rows, stamps = rows[free_to_go], stamps[free_to_go]
        return self._eviction.choose(rows, stamps, count, epoch, len(arrays.records))

    def made_by(self, number: int) -> np.ndarray:
        """Row numbers of the records that this log (0: the oldest) has made and that no later one has changed."""
        arrays = self._arrays
        log = list(self._undo)[number]
        rows = log.made_rows
        # Not those in a pane that has expired: they come back if that is undone.
        there = np.zeros(len(arrays.records), bool)
        there[self.all_rows()] = True
        made: np.ndarray = rows[there[rows] & (arrays.records[rows, self.layout.words] == log.stamp)]
        return made

    def evict(self, rows: np.ndarray) -> None:
        """Drop these ``eviction_candidates``, or what a log has made, and all room that is not needed without them.

        Row numbers change.
        """
        self._eviction.moved(self._arrays.evict(rows, self._undo))


def key_numbers(rows: Rows, layout: RecordLayout) -> tuple[np.ndarray, np.ndarray]:
    """A number for each row, the same for rows of one key and pane, and the first row of each number, ascending."""
    keys = layout.of_keys
    words = rows.words[:, : keys.words].copy(order="C")
    words[:, VALID] &= layout.key_mask
    table = Table(keys, rows_expected=len(rows))
    table.begin(len(rows))
    table.merge(words, rows.heap, 0, len(rows))
    numbers = table.locate(Rows(words, rows.heap))
    firsts = np.full(table.rows, len(rows), np.int64)
    np.minimum.at(firsts, numbers, np.arange(len(rows)))
    return numbers, firsts
