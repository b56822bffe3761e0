"""Cached records: copies of records that lie elsewhere, by a 64-bit id, within a number of bytes.

Invariants
- Every entry is a copy: dropping one loses nothing. An id stands for one record that does not change; whoever changes
  the record drops the id.
- Beyond ``capacity_bytes`` entries are evicted in bulk, until at most three quarters are taken; the policy chooses
  them. So the work of eviction is spread over the entries that come. Hinted entries that are not used yet are spared,
  and evicted only where they would not fit otherwise.
- Records stay in the blocks in which they came (``record_blocks``): most hinted records are used together, without
  having been moved meanwhile. The memory of dropped records is given back when it is needed.
- ``wasted`` counts hinted entries that were evicted without having been used.
- With ``max_age_s``, an entry that was put longer ago counts as absent, by the monotonic clock, until it is put anew.

Threads: any; one lock, under which no record is copied for a caller.
"""

from __future__ import annotations

import math
import threading

import numpy as np

from tailrace.env import clock
from tailrace.state.cache import id_kernels as ik
from tailrace.state.cache.id_table import ENTRY_BYTES, IdTable
from tailrace.state.cache.policies import NEVER, policy_of
from tailrace.state.cache.record_blocks import BLOCKS_MOST, RecordBlocks
from tailrace.state.layout import RecordLayout
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows, no_rows, plain
from tailrace.state.rows.value_kernels import heap_needed

_ENTRY_BYTES = ENTRY_BYTES + 8 + 1 + 4 + 4
_AGE_BYTES = 8
"""More, for each entry of a cache whose entries grow old."""
_ROOM = 1 << 20
_TIGHT_SHARE = 15 / 16
"""Share of the capacity that is taken, at most, after eviction and compaction: more than hinted entries may take."""
_OWN_SHARE = 0.9
_HINTED_SHARE = 0.9
"""Share of the capacity for hinted entries: entries differ in size, and evicting others takes a while."""


class RecordCache:
    def __init__(
        self,
        layout: RecordLayout,
        capacity_bytes: int,
        policy: str = "timestamp",
        *,
        max_age_s: float | None = None,
    ) -> None:
        self._layout = layout
        self._max_age_s = max_age_s
        self._entry_bytes = _ENTRY_BYTES + (_AGE_BYTES if max_age_s is not None else 0)
        self._capacity_bytes = capacity_bytes
        self._policy = policy_of(policy)
        self._lock = threading.Lock()
        self._table = IdTable()
        self._ranks = np.full(self._table.room, NEVER, np.int64)
        self._hinted = np.zeros(self._table.room, bool)
        self._blocks = RecordBlocks(layout)
        self._which = np.zeros(self._table.room, np.int32)  # the block of an entry's record, and its number there
        self._numbers = np.zeros(self._table.room, np.int32)
        self._put_at = np.zeros(self._table.room if max_age_s is not None else 0, np.float64)
        self._mean_bytes = float(self._entry_bytes + 8 * layout.words)  # of an entry, when there last were some
        self._by_time = policy == "timestamp"
        self._past = NEVER  # the latest event time at which entries were used
        self.wasted = self.evicted = 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def nbytes(self) -> int:
        return self._table.end * self._entry_bytes + self._blocks.nbytes

    @property
    def pending(self) -> int:
        """Hinted entries that were not used yet."""
        with self._lock:
            return int(self._hinted[self._table.living()].sum())

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
        """About the capacity that so many hinted entries need."""
        with self._lock:
            return int(entries * self._mean_bytes / _HINTED_SHARE)

    def get(self, ids: np.ndarray, time: int) -> tuple[Rows, np.ndarray]:
        """Copies of the cached records, in the order of ``ids``, and which of the ids are cached."""
        with self._lock:
            self._past = max(self._past, time)
            if not len(self._table):
                return no_rows(self._layout), np.zeros(len(ids), bool)
            numbers = self._found(ids)
            there = numbers >= 0
            found = numbers[there]
            self._policy.use(self._ranks, found, np.full(len(found), time, np.int64))
            self._hinted[found] = False
            taken = self._blocks.taken(self._which[found], self._numbers[found])
        return taken.rows(), there

    def hint(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """These will be used, at these event times. Returns which are cached."""
        with self._lock:
            numbers = self._found(ids)
            there: np.ndarray = numbers >= 0
            self._policy.use(self._ranks, numbers[there], times[there])
            return there

    def holds(self, ids: np.ndarray) -> np.ndarray:
        """Which are cached."""
        with self._lock:
            there: np.ndarray = self._found(ids) >= 0
            return there

    def room(self) -> int:
        """How many more entries could be hinted without evicting other hinted ones whose event time is not over.

        A time is not over with the first entry that is used at it: an epoch reads frame by frame.
        """
        if not self._by_time:
            return _ROOM
        with self._lock:
            table = self._table
            waiting = int(ik.count_waiting(table.alive, self._hinted, self._ranks, self._past, table.end))
            return int(_HINTED_SHARE * self._capacity_bytes / self._mean_bytes) - waiting

    def put(self, ids: np.ndarray, rows: Rows, times: np.ndarray, *, hinted: bool = False) -> None:
        """Put or replace the entries of these ids, each named once. ``hinted``: nobody has used them yet.

        Strings are kept where they lie, so nobody may change them any more.
        """
        if not len(ids):
            return
        own = self._own(plain(rows))
        with self._lock:
            old = self._table.find(ids)
            self._remove(old[old >= 0])
            block = self._blocks.add(own)
            entries = self._table.add(ids)
            self._make_room()
            self._which[entries] = block
            self._numbers[entries] = np.arange(len(own))
            self._ranks[entries] = NEVER
            self._hinted[entries] = hinted
            if self._max_age_s is not None:
                self._put_at[entries] = clock.monotonic()
            self._policy.use(self._ranks, entries, times)
            self._mean_bytes = self._entry_bytes + self._blocks.nbytes / self._blocks.rows
            self._hold_capacity()
            if len(self._blocks) > BLOCKS_MOST:
                self._compact_blocks(self._blocks.smallest())

    def drop(self, ids: np.ndarray) -> None:
        """Drop these ids, each named once, where they are cached."""
        with self._lock:
            if not len(self._table):
                return
            numbers = self._table.find(ids)
            self._remove(numbers[numbers >= 0])

    def ids(self) -> np.ndarray:
        """Of all entries."""
        with self._lock:
            ids: np.ndarray = self._table.ids[self._table.living()].copy()
            return ids

    def rename(self, before: np.ndarray, after: np.ndarray) -> None:
        """The records of these ids, each named once, have other ids from now on, which are not in use yet."""
        with self._lock:
            numbers = self._table.find(before)
            there = numbers >= 0
            self._table.rename(numbers[there], after[there])

    def keep_only(self, wanted: np.ndarray) -> None:
        """Drop every entry whose id, shifted right by 32 bits, is none of these: their records are gone."""
        with self._lock:
            living = self._table.living()
            self._remove(living[~np.isin(self._table.ids[living] >> 32, wanted)])

    def clear(self) -> None:
        with self._lock:
            self._remove(self._table.living())

    def _own(self, rows: Rows) -> Rows:
        """Words of our own, and strings, which are not copied where hardly any belong to other rows."""
        if self._layout.has_bytes:
            at = np.arange(len(rows), dtype=np.int64)
            if int(heap_needed(rows.words, rows.heap, at, self._layout.bytes_words)) < _OWN_SHARE * len(rows.heap):
                return take(rows, at, self._layout)
        return Rows(rows.words.copy(), rows.heap)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _found(self, ids: np.ndarray) -> np.ndarray:
        """The number of each id's entry, -1 where there is none or it is too old."""
        numbers = self._table.find(ids)
        if self._max_age_s is not None and len(self._table):
            old = self._put_at[numbers] < clock.monotonic() - self._max_age_s
            numbers[(numbers >= 0) & old] = -1
        return numbers

    def _remove(self, entries: np.ndarray) -> None:
        """Living ones, each named once."""
        if len(entries):
            self._table.drop(entries)
            self._blocks.release(self._which[entries])
            if 2 * self._table.dead > self._table.end:
                self._renumber()

    def _hold_capacity(self) -> None:
        """Evict entries where needed, then compact the rest, as far as that is needed."""
        tight_bytes = int(_TIGHT_SHARE * self._capacity_bytes)
        while self.nbytes > self._capacity_bytes and len(self._table):
            self._renumber()
            if self._living_bytes() > tight_bytes:
                self._evict()
            self._compact_blocks(self._blocks.sparsest(self.nbytes - tight_bytes))

    def _evict(self) -> None:
        """Evict until living entries take about three quarters. No entry is dead when this is called."""
        end = self._table.end
        spared = self._hinted[:end].copy()
        if self._by_time:
            spared &= self._ranks[:end] >= self._past  # the time of others is over
        others = end - int(spared.sum())
        wanted = self._share_beyond(self._capacity_bytes - self._capacity_bytes // 4)
        wanted = max(1, min(wanted, max(others, self._share_beyond(self._capacity_bytes))))
        going = self._victims(wanted, spared, others)
        self.evicted += len(going)
        self.wasted += int(self._hinted[going].sum())
        self._remove(going)

    def _victims(self, wanted: int, spared: np.ndarray, others: int) -> np.ndarray:
        """With the timestamp policy, spared entries come after all others: their timestamps may be as old."""
        end = self._table.end
        ranks = self._ranks[:end]
        if not self._by_time:
            return self._policy.victims(ranks, self._table.alive[:end], wanted)
        going = self._policy.victims(ranks, ~spared, min(wanted, others))
        if wanted <= others:
            return going
        return np.concatenate([going, self._policy.victims(ranks, spared, wanted - others)])

    def _share_beyond(self, bytes_: int) -> int:
        """About how many entries take the bytes beyond this."""
        living, held = len(self._table), self._living_bytes()
        return max(0, min(living, math.ceil(living * (held - bytes_) / held)))

    def _living_bytes(self) -> float:
        """About the bytes that living entries take."""
        return len(self._table) * self._entry_bytes + self._blocks.live_bytes

    def _make_room(self) -> None:
        """Grow the columns beside the table to its length."""
        more = self._table.room - len(self._ranks)
        if more > 0:
            ranks = np.concatenate([self._ranks, np.full(more, NEVER, np.int64)])
            hinted = np.concatenate([self._hinted, np.zeros(more, bool)])
            which, numbers = (np.concatenate([part, np.zeros(more, np.int32)]) for part in (self._which, self._numbers))
            self._ranks, self._hinted, self._which, self._numbers = ranks, hinted, which, numbers
            if self._max_age_s is not None:
                self._put_at = np.concatenate([self._put_at, np.zeros(more, np.float64)])

    def _trim(self) -> None:
        """Give back all memory of dropped entries."""
        self._renumber()
        self._compact_blocks(self._blocks.sparsest(self.nbytes))
        self._table.trim()
        room = self._table.room
        self._ranks, self._hinted = self._ranks[:room].copy(), self._hinted[:room].copy()
        self._which, self._numbers = self._which[:room].copy(), self._numbers[:room].copy()
        self._put_at = self._put_at[:room].copy()

    def _renumber(self) -> None:
        if not self._table.dead:
            return
        kept = self._table.compact()
        self._policy.renumbered(kept)
        aged = [self._put_at] if self._max_age_s is not None else []
        for part in (self._ranks, self._hinted, self._which, self._numbers, *aged):
            part[: len(kept)] = part[kept]

    def _compact_blocks(self, blocks: list[int]) -> None:
        """Compact the living records of these blocks to one block."""
        living = self._table.living()
        moving = living[np.isin(self._which[living], blocks)]
        together = self._blocks.taken(self._which[moving], self._numbers[moving]).rows()
        self._blocks.free(blocks)
        if len(moving):
            self._which[moving] = self._blocks.add(together)
            self._numbers[moving] = np.arange(len(moving))
