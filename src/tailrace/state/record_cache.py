"""Clean copies of records that live elsewhere, by a 64-bit id, within so many bytes.

Invariants
- Every entry is a copy: who drops one loses nothing. An id stands for one record that does not change; whoever lets it
  change drops the id.
- Beyond ``capacity_bytes`` entries leave in bulk, until at most three quarters are taken; the policy says who. So the
  work of leaving is spread over the entries that come. What is foretold and unused is spared by that, and leaves only
  where it would not fit otherwise.
- ``wasted`` counts entries that were foretold and left without having been used.

Threads: any; one lock.
"""

from __future__ import annotations

import threading

import numpy as np

from tailrace.cache import id_kernels as ik
from tailrace.cache.id_table import ENTRY_BYTES, IdTable
from tailrace.cache.policies import NEVER, policy_of
from tailrace.state import run_kernels as rk
from tailrace.state.layout import RecordLayout
from tailrace.state.runs import no_rows, plain, take
from tailrace.state.table import Rows
from tailrace.state.upkeep_kernels import heap_needed

_FIRST_HEAP = 1024
_ROOM = 1 << 20
_OWN_SHARE = 0.9
_FORETOLD_SHARE = 0.9
"""Of the capacity: entries differ in size, and what is in the way takes its time to leave."""


class RecordCache:
    def __init__(self, layout: RecordLayout, capacity_bytes: int, policy: str = "timestamp") -> None:
        self._layout = layout
        self._capacity_bytes = capacity_bytes
        self._policy = policy_of(policy)
        self._lock = threading.Lock()
        self._table = IdTable()
        self._ranks = np.full(self._table.room, NEVER, np.int64)
        self._foretold = np.zeros(self._table.room, bool)
        self._words = np.empty((self._table.room, layout.words), np.int64)
        self._heap = np.empty(_FIRST_HEAP if layout.has_bytes else 0, np.uint8)
        self._heap_end = 0
        self._entry_bytes = 8 * layout.words + ENTRY_BYTES + 9
        self._mean_bytes = float(self._entry_bytes)  # of an entry, when there last were some
        self._by_time = policy == "timestamp"
        self._past = NEVER  # the latest time at which entries were used
        self.wasted = self.evicted = 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._table.end * self._entry_bytes + self._heap_end

    @property
    def pending(self) -> int:
        """Entries that were foretold, are there, and were not used yet."""
        with self._lock:
            return int(self._foretold[self._table.living()].sum())

    @property
    def capacity_bytes(self) -> int:
        return self._capacity_bytes

    def resize(self, capacity_bytes: int) -> None:
        with self._lock:
            shrinks, self._capacity_bytes = capacity_bytes < self._capacity_bytes, capacity_bytes
            self._hold_capacity()
            if shrinks:
                self._trim()

    def needed_bytes(self, entries: int) -> int:
        """About the capacity with which so many could be foretold."""
        with self._lock:
            return int(entries * self._mean_bytes / _FORETOLD_SHARE)

    def get(self, ids: np.ndarray, time: int) -> tuple[Rows, np.ndarray]:
        """Copies of the entries that are there, in the order of ``ids``, and which of the ids have one."""
        with self._lock:
            self._past = max(self._past, time)
            if not len(self._table):
                return no_rows(self._layout), np.zeros(len(ids), bool)
            numbers = self._table.find(ids)
            there = numbers >= 0
            found = numbers[there]
            self._policy.use(self._ranks, found, np.full(len(found), time, np.int64))
            self._foretold[found] = False
            return take(self._rows(), found, self._layout), there

    def hint(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """These will be used, at these event times; tells which are there."""
        with self._lock:
            numbers = self._table.find(ids)
            there: np.ndarray = numbers >= 0
            self._policy.use(self._ranks, numbers[there], times[there])
            return there

    def holds(self, ids: np.ndarray) -> np.ndarray:
        """Which are there."""
        with self._lock:
            there: np.ndarray = self._table.find(ids) >= 0
            return there

    def room(self) -> int:
        """How many entries more could be foretold without pushing out others that are, and whose time is not over.

        It is not over with the first that is used at it: an epoch reads frame by frame.
        """
        if not self._by_time:
            return _ROOM
        with self._lock:
            table = self._table
            waiting = int(ik.count_waiting(table.alive, self._foretold, self._ranks, self._past, table.end))
            return int(_FORETOLD_SHARE * self._capacity_bytes / self._mean_bytes) - waiting

    def put(self, ids: np.ndarray, rows: Rows, times: np.ndarray, *, foretold: bool = False) -> None:
        """Entries in place of what these ids had; each id is named once. ``foretold``: nobody has used them yet."""
        if not len(ids):
            return
        own = self._compact_copy(plain(rows))
        with self._lock:
            old = self._table.find(ids)
            self._table.drop(old[old >= 0])
            numbers = self._table.add(ids)
            self._make_room(len(own.heap))
            rk.shift_strings(own.words, self._layout.bytes_words, self._heap_end)
            self._words[numbers] = own.words
            self._heap[self._heap_end : self._heap_end + len(own.heap)] = own.heap
            self._heap_end += len(own.heap)
            self._ranks[numbers] = NEVER
            self._foretold[numbers] = foretold
            self._policy.use(self._ranks, numbers, times)
            self._mean_bytes = self.nbytes / self._table.end
            self._hold_capacity()

    def drop(self, ids: np.ndarray) -> None:
        """Forget these, where they are there; each is named once."""
        with self._lock:
            if not len(self._table):
                return
            numbers = self._table.find(ids)
            self._table.drop(numbers[numbers >= 0])
            if 2 * self._table.dead > self._table.end:
                self._compact()

    def ids(self) -> np.ndarray:
        """Of all entries."""
        with self._lock:
            ids: np.ndarray = self._table.ids[self._table.living()].copy()
            return ids

    def rename(self, before: np.ndarray, after: np.ndarray) -> None:
        """What these ids stood for, each named once, others stand for from now on, which nobody has used yet."""
        with self._lock:
            numbers = self._table.find(before)
            there = numbers >= 0
            self._table.rename(numbers[there], after[there])

    def keep_only(self, wanted: np.ndarray) -> None:
        """Forget every entry whose id, shifted right by 32 bits, is none of these: what they were copies of is gone."""
        with self._lock:
            living = self._table.living()
            self._table.drop(living[~np.isin(self._table.ids[living] >> 32, wanted)])
            if 2 * self._table.dead > self._table.end:
                self._compact()

    def clear(self) -> None:
        with self._lock:
            self._table.drop(self._table.living())
            self._compact()

    def _compact_copy(self, rows: Rows) -> Rows:
        """Words that may be changed, and strings, which are not copied where hardly any are of other rows."""
        if self._layout.has_bytes:
            at = np.arange(len(rows), dtype=np.int64)
            if int(heap_needed(rows.words, rows.heap, at, self._layout.bytes_words)) < _OWN_SHARE * len(rows.heap):
                return take(rows, at, self._layout)
        return Rows(rows.words.copy(), rows.heap)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _rows(self) -> Rows:
        return Rows(self._words, self._heap)

    def _hold_capacity(self) -> None:
        if self.nbytes <= self._capacity_bytes:
            return
        self._compact()
        while self.nbytes > self._capacity_bytes and len(self._table):
            end = self._table.end
            spared = self._foretold[:end].copy()
            if self._by_time:
                spared &= self._ranks[:end] >= self._past  # others will not be used any more
            others = end - int(spared.sum())
            wanted = self._share_beyond(self._capacity_bytes - self._capacity_bytes // 4)
            wanted = min(wanted, max(others, self._share_beyond(self._capacity_bytes)))
            going = self._victims(wanted, spared, others)
            self.evicted += len(going)
            self.wasted += int(self._foretold[going].sum())
            self._table.drop(going)
            self._compact()

    def _victims(self, wanted: int, spared: np.ndarray, others: int) -> np.ndarray:
        """By timestamp, those that are spared only after all others: copies of what will be used may be as young."""
        end = self._table.end
        ranks = self._ranks[:end]
        if not self._by_time:
            return self._policy.victims(ranks, self._table.alive[:end], wanted)
        going = self._policy.victims(ranks, ~spared, min(wanted, others))
        if wanted <= others:
            return going
        return np.concatenate([going, self._policy.victims(ranks, spared, wanted - others)])

    def _share_beyond(self, bytes_: int) -> int:
        """So many of the entries, about, take what is beyond this."""
        return min(self._table.end, -(-self._table.end * (self.nbytes - bytes_) // self.nbytes))

    def _make_room(self, heap_bytes: int) -> None:
        room = self._table.room
        if len(self._words) < room:
            grown = np.empty((room, self._layout.words), np.int64)
            grown[: len(self._words)] = self._words
            ranks, foretold = np.full(room, NEVER, np.int64), np.zeros(room, bool)
            ranks[: len(self._ranks)], foretold[: len(self._foretold)] = self._ranks, self._foretold
            self._words, self._ranks, self._foretold = grown, ranks, foretold
        if self._heap_end + heap_bytes > len(self._heap):
            heap = np.empty(max(2 * len(self._heap), self._heap_end + heap_bytes), np.uint8)
            heap[: self._heap_end] = self._heap[: self._heap_end]
            self._heap = heap

    def _trim(self) -> None:
        """Give back memory that entries had who are gone."""
        self._compact()
        self._table.trim()
        room = self._table.room
        self._words, self._ranks, self._foretold = (
            part[:room].copy() for part in (self._words, self._ranks, self._foretold)
        )
        self._heap = self._heap[: max(self._heap_end, _FIRST_HEAP if self._layout.has_bytes else 0)].copy()

    def _compact(self) -> None:
        """Let go of the room of entries that are gone."""
        if not self._table.dead:
            return
        kept = self._table.compact()
        self._policy.renumbered(kept)
        rows = take(self._rows(), kept, self._layout) if len(kept) else no_rows(self._layout)
        self._words[: len(kept)] = rows.words
        self._ranks[: len(kept)] = self._ranks[kept]
        self._foretold[: len(kept)] = self._foretold[kept]
        self._heap_end = len(rows.heap)
        self._heap[: self._heap_end] = rows.heap
