"""How spilled records are read: from the write-back buffer, from the cache of prefetched records, or from disk.

Invariants
- A record at a position of a segment never changes, so (segment, position) names a copy for as long as the segment
  lives. A compacted record keeps its copy (``moved``); ``keep_only`` forgets copies of segments that are gone.
- A record that is in flight is not read twice: whoever needs it waits for it.
- The cache gets a share of the store's memory that follows the hints of recent epochs, and the records that they read
  without a hint and may read again (``share_out``).
- Where reading is slow, records that were read without a hint are cached too, where they may be read again (``keep``):
  not by callers that take them, or that say later which of them stay on disk.
- Whoever needs records of several segments reads them at once: latencies then overlap.
- ``wait_s`` is the time for which callers of ``read`` had to wait: for their own reads and for fetches in flight.
  Copying records that are in memory does not count.

Threads: any. Whoever closes a segment sees to it that nobody reads it, but for prefetching: that finds it gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from tailrace.env import clock
from tailrace.env.files.shaped_reads import read_device
from tailrace.state.cache.id_table import ENTRY_BYTES
from tailrace.state.cache.prefetch import Prefetcher
from tailrace.state.cache.record_cache import RecordCache
from tailrace.state.layout import RecordLayout
from tailrace.state.metrics import Metrics
from tailrace.state.rows.arrange import take
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.segments.fingerprint_index import POSITION_BITS
from tailrace.state.segments.point_reads import PointRows, read_records
from tailrace.state.segments.row_buffer import RowBuffer
from tailrace.state.tuning import SpillTuning

CACHE_SHARE, CACHE_SHARE_MOST = 8, 2
"""The cache gets one part in so many of the store's memory; with many hints, up to one in so many."""
_EPOCHS_KEPT = 16


class Segment(Protocol):
    """The part of ``segment.Segment`` that is used here."""

    uid: int

    @property
    def in_memory(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def points(self) -> PointRows: ...
    def copied(self, at: np.ndarray) -> Rows: ...
    def heap_bytes(self, count: int) -> int: ...


class SegmentReader:
    def __init__(self, layout: RecordLayout, memory_bytes: int, tuning: SpillTuning) -> None:
        self._layout = layout
        self._device = read_device()
        self.slow = self._device.slow or tuning.reads == "direct"
        self.async_io = tuning.prefetch == "async-io"
        self._hinted = tuning.prefetch == "on"
        self._worth_s = tuning.hint_worth_s
        self._record_s = 0.0  # what reading a record takes, lately
        self._memory_bytes = memory_bytes
        self._cache = RecordCache(layout, memory_bytes // CACHE_SHARE, tuning.policy)
        self._room_for = 0  # so many records, since an epoch began, there should be room
        self._room_lately: deque[int] = deque(maxlen=_EPOCHS_KEPT)
        self._prefetcher: Prefetcher | None = None
        if tuning.prefetch != "off":
            self._prefetcher = Prefetcher(
                self._fetch, self._keep, self._cache.room, self._cache.hint, self._living, name="spilled"
            )
        self._segments: dict[int, Segment] = {}
        self._lock = threading.Lock()
        self.time = 0
        self.hits = self.misses = self.late = 0
        self.wait_s = 0.0

    @property
    def nbytes(self) -> int:
        return self._cache.nbytes

    @property
    def wants_hints(self) -> bool:
        """Whether hints are worth their cost: not before reads were seen, nor where the page cache answers them."""
        return self._hinted and (self.slow or self._record_s >= self._worth_s)

    def begin(self, epoch: int) -> None:
        """From now on records are read for ``epoch``: pending hints for earlier ones are dropped."""
        self.time = epoch
        with self._lock:
            self._room_lately.append(self._room_for)
            self._room_for = 0
        if self._prefetcher is not None:
            self._prefetcher.drop_before(epoch)

    def share_out(self, fixed_bytes: int) -> int:
        """The bytes that the cache may take from now on. The caller keeps the rest of the store within what is left.

        ``fixed_bytes``: of the store's memory, the part that cannot be evicted. The share grows by an eighth at a time:
        evicting records to make room for it takes a while.
        """
        least, now = self._memory_bytes // CACHE_SHARE, self._cache.capacity_bytes
        most = max(least, (self._memory_bytes - fixed_bytes) // CACHE_SHARE_MOST)
        wanted = self._cache.needed_bytes(max(self._room_lately, default=0))
        wanted = min(most, now + least, max(least, wanted + wanted // 8))
        if wanted > now or 2 * wanted < now or now > most:
            self._cache.resize(wanted)
        return self._cache.capacity_bytes

    def read(self, segment: Segment, at: np.ndarray, *, keep: bool) -> Rows:
        """Copies of the records at these positions, ascending and each once. ``keep``: they may be read again."""
        rows, numbers = self.read_all([segment], np.zeros(len(at), np.int64), at, keep=keep)
        return Rows(rows.words[numbers], rows.heap)

    def read_all(
        self, segments: Sequence[Segment], owners: np.ndarray, at: np.ndarray, *, keep: bool
    ) -> tuple[Rows, np.ndarray]:
        """As ``read``, of several segments, of each its number: all copies, in any order, and the number of each one's.

        Records that are neither cached nor in flight are read at once.
        """
        place, got = np.empty(len(at), np.int64), list[Rows]()
        near, far = self._parted(segments, owners)
        for segment, own in near:
            place[own] = sum(map(len, got)) + np.arange(len(own))
            got.append(segment.copied(at[own]))
        if len(far):
            self._read_far(ids_in(segments, owners, at), far, place, got, keep=keep)
        return concat_rows(got, self._layout), place

    def _parted(
        self, segments: Sequence[Segment], owners: np.ndarray
    ) -> tuple[list[tuple[Segment, np.ndarray]], np.ndarray]:
        """Which records lie in each segment in memory, and which on disk; the segments of the latter are registered."""
        there = [segment.in_memory for segment in segments]  # asked once: they are being written out
        near = [(s, np.flatnonzero(owners == number)) for number, s in enumerate(segments) if there[number]]
        self._know(segment for segment, here in zip(segments, there, strict=True) if not here)
        return [(segment, own) for segment, own in near if len(own)], np.flatnonzero(~np.array(there, bool)[owners])

    def _read_far(self, ids: np.ndarray, chosen: np.ndarray, place: np.ndarray, got: list[Rows], *, keep: bool) -> None:
        """Put copies of the chosen ids, which are on disk, behind what was got, and their numbers into ``place``."""
        missed = late = 0
        waited_s = 0.0

        def put(where: np.ndarray, rows: Rows) -> None:
            place[where] = sum(map(len, got)) + np.arange(len(rows))
            got.append(rows)

        def cached(wanted: np.ndarray) -> np.ndarray:
            """Those that are not there."""
            rows, there = self._cache.get(ids[wanted], self.time)
            if len(rows):
                put(wanted[there], rows)
            left: np.ndarray = wanted[~there]
            return left

        def fetched(wanted: np.ndarray) -> None:
            nonlocal waited_s
            began = clock.monotonic()
            order, rows = self._fetch(ids[wanted], [])
            waited_s += clock.monotonic() - began
            put(wanted[order], rows)
            if keep and self.slow:
                self._keep_some(ids[wanted[order]], rows)

        flying = np.zeros(len(ids), bool)
        if self._prefetcher is not None:
            flying[chosen] = self._prefetcher.claim(ids[chosen])
        missing = cached(chosen)
        coming, missing = missing[flying[missing]], missing[~flying[missing]]
        if len(missing):
            missed = len(missing)
            fetched(missing)
        if len(coming):
            late = len(coming)
            assert self._prefetcher is not None
            began = clock.monotonic()
            self._prefetcher.wait_for(ids[coming])
            waited_s += clock.monotonic() - began
            if len(failed := cached(coming)):
                fetched(failed)
        if self._prefetcher is not None:
            self._prefetcher.resume()
        self._count(waited_s, len(chosen) - missed, missed, late)

    def keep(self, ids: np.ndarray, rows: Rows) -> None:
        """Cache records, each named once, that were read and stay on disk."""
        new = np.flatnonzero(~self._cache.holds(ids))
        if len(new):
            self._keep_some(ids[new], take(rows, new, self._layout))

    def _keep_some(self, ids: np.ndarray, rows: Rows) -> None:
        """As many as fit into half of the cache: the other half is for hints."""
        with self._lock:  # several shards are read at once
            self._room_for += 2 * len(ids)
        size = (rows.words.nbytes + rows.heap.nbytes) / len(rows) + ENTRY_BYTES
        some = np.arange(min(len(ids), int(self._cache.capacity_bytes / 2 / size)), dtype=np.int64)
        if len(some) < len(ids):
            ids, rows = ids[some], take(rows, some, self._layout)
        self._cache.put(ids, rows, np.full(len(ids), self.time, np.int64))

    def _count(self, waited_s: float, hits: int, misses: int, late: int) -> None:
        with self._lock:  # several shards are read at once
            self.wait_s += waited_s
            self.hits += hits
            self.misses += misses
            self.late += late

    def _know(self, segments: Iterable[Segment]) -> None:
        with self._lock:
            self._segments.update({segment.uid: segment for segment in segments})

    def hint(self, segments: Sequence[Segment], owners: np.ndarray, at: np.ndarray, time: int) -> None:
        """Records, each once, at these positions of the segments with these numbers, will be read."""
        if self._prefetcher is None:
            return
        near, far = self._parted(segments, owners)
        for segment, own in near:
            if self._hinted and len(own) <= self._cache.room():
                # The buffer is about to be written: with a copy in the cache the record need not be read then. (With
                # async-io it is read at once, before that.)
                times = np.full(len(own), time, np.int64)
                self._cache.put(ids_of(segment, at[own]), segment.copied(at[own]), times)
        if not len(far):
            return
        ids, times = ids_in(segments, owners[far], at[far]), np.full(len(far), time, np.int64)
        new = ~self._cache.hint(ids, times)
        fresh = self._prefetcher.hint(ids[new], times[new])
        with self._lock:
            self._room_for += fresh

    def drop(self, ids: np.ndarray) -> None:
        """These records are in a table from now on: their copies are of no use."""
        self._cache.drop(ids)

    def known(self) -> np.ndarray:
        """Ids of all records that are cached or hinted."""
        ids = [self._cache.ids(), *([self._prefetcher.ids()] if self._prefetcher is not None else [])]
        return np.unique(np.concatenate(ids))

    def moved(self, before: np.ndarray, segment: Segment, at: np.ndarray) -> None:
        """Records that ``known`` named lie in another segment now, at these positions: their copies stay."""
        after = ids_of(segment, at)
        self._know([segment])
        self._cache.rename(before, after)
        if self._prefetcher is not None:
            self._prefetcher.rename(before, after)

    def keep_only(self, segments: list[int]) -> None:
        """Forget cached records and hints of other segments than these."""
        with self._lock:
            for uid in [uid for uid in self._segments if uid not in segments]:
                del self._segments[uid]
        self._cache.keep_only(np.array(segments, np.int64))
        if self._prefetcher is not None:  # nothing that can be fetched
            ids = self._prefetcher.ids()
            self._prefetcher.drop(ids[~np.isin(ids >> POSITION_BITS, segments)])

    def metrics(self) -> Metrics:
        prefetcher = self._prefetcher
        metrics: Metrics = {
            "spilledHits": self.hits,
            "spilledMisses": self.misses,
            "spilledLate": self.late,
            "spilledWaitMs": self.wait_s * 1e3,
            "cacheBytes": self._cache.nbytes,
        }
        if prefetcher is not None:
            metrics |= {
                "hintsReceived": prefetcher.received,
                "hintsDropped": prefetcher.dropped,
                "hintsFetched": prefetcher.fetched,
                "hintsFailed": prefetcher.failed,
                "hintsWasted": self._cache.wasted,
                "hintsPending": self._cache.pending,
                "spilledFetchMsP99": prefetcher.fetch_ms(0.99),
            }
        return metrics

    def drain(self) -> None:
        """Wait until hinted records are fetched; for tests and benches."""
        if self._prefetcher is not None:
            self._prefetcher.drain()

    def close(self) -> None:
        if self._prefetcher is not None:
            self._prefetcher.close()
        self._segments.clear()
        self._cache.clear()

    # -- fetching -----------------------------------------------------------------------------------------------------

    def _learn(self, began: float, records: int) -> None:
        took_s = (clock.monotonic() - began) / records
        with self._lock:
            self._record_s = took_s if not self._record_s else 0.9 * self._record_s + 0.1 * took_s

    def _fetch(self, ids: np.ndarray, _: list[object]) -> tuple[np.ndarray, Rows]:
        """Records of several segments, and the order in which they stand."""
        began = clock.monotonic()
        order = np.argsort(ids)  # by segment, then by position
        ids = ids[order]
        starts = np.flatnonzero(np.append(True, np.diff(ids >> POSITION_BITS) != 0))
        with self._lock:
            segments = [self._segments[int(uid)] for uid in ids[starts] >> POSITION_BITS]
        parts = list(zip(segments, np.split(ids & ((1 << POSITION_BITS) - 1), starts[1:]), strict=True))
        room = RowBuffer(self._layout, len(ids), sum(segment.heap_bytes(len(at)) for segment, at in parts))
        with self._device.reading(len(ids)):
            read_records([(segment.points, at) for segment, at in parts], room)
        self._learn(began, len(ids))
        return order, room.rows()

    def _living(self, ids: np.ndarray) -> np.ndarray:
        """Which records still lie somewhere: a segment may be closed while a fetch is on its way to it."""
        with self._lock:
            uids = [uid for uid, segment in self._segments.items() if not segment.closed]
        living: np.ndarray = np.isin(ids >> POSITION_BITS, uids)
        return living

    def _keep(self, ids: np.ndarray, found: tuple[np.ndarray, Rows], times: np.ndarray) -> None:
        order, rows = found
        self._cache.put(ids[order], rows, times[order], hinted=True)


def positions_in(segment: Segment, ids: np.ndarray) -> np.ndarray:
    """Where those of these records lie that are in a segment."""
    positions: np.ndarray = ids[ids >> POSITION_BITS == segment.uid] & ((1 << POSITION_BITS) - 1)
    return positions


def ids_of(segment: Segment, at: np.ndarray) -> np.ndarray:
    """The id of each record: segment and position."""
    ids: np.ndarray = (segment.uid << POSITION_BITS) | at
    return ids


def ids_in(segments: Sequence[Segment], owners: np.ndarray, at: np.ndarray) -> np.ndarray:
    """As ``ids_of``, of records of several segments, given by their numbers."""
    uids = np.array([segment.uid for segment in segments], np.int64)
    ids: np.ndarray = (uids[owners] << POSITION_BITS) | at
    return ids
