"""The prefetching manager: fetches the records that hints name before an epoch needs them.

Invariants
- The buffer has at most one entry for an id, with the latest time that a hint gave it. An entry is *pending* until a
  worker takes it, *in flight* while it is fetched, and gone when the fetched record is in the cache.
- Nobody fetches an id that is in flight: whoever needs it waits (``wait_for``). Whoever needs a pending one takes it
  out (``claim``) and fetches it with everything else that is missing, at once; it waits for the ids in flight after
  that.
- Hints that come while all workers are busy gather in the buffer, and the next free worker fetches them together.
- A record that is in the cache is not fetched again (``held``): a caller may look into the cache before a record
  arrives there, and give the hint after it has arrived.
- A fetch that fails, its keys included, leaves nothing behind: whoever needs the id fetches it again and meets the
  error where it can be reported. Where some of its ids stand for nothing any more (``living``), the others are fetched
  all the same. ``failed`` counts the ids of which nothing came.
- The buffer is bounded; hints beyond its room are dropped, and counted.
- No more is fetched than the cache has room for (``space``): the rest stays pending, for whoever needs it.

Threads: any. One lock, never held during a fetch. Workers start with the first hint and end with ``close``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tailrace.env import clock
from tailrace.state.cache.id_table import IdTable

_FETCHES_KEPT = 64
_ROOM = 1 << 20
BATCH = 512
"""Ids in one fetch, at most: whoever needs one id of a fetch waits for all of it, and several workers share many."""

Fetch = Callable[[np.ndarray, list[Any]], Any]
"""What is stored under these ids, in any form; beside them their keys, a part for each call of ``hint`` that gave some,
in their order (none where none were given)."""
_KeyPart = tuple[Callable[[np.ndarray], Any], np.ndarray]
"""What gives keys, and of which positions."""
Keep = Callable[[np.ndarray, Any, np.ndarray], None]
"""Put the result of ``Fetch`` into the cache: ids, the result, event times."""
Space = Callable[[], int]
"""How many more records the cache has room for. Called under the lock."""
Living = Callable[[np.ndarray], np.ndarray]
"""Which of these ids still stand for something that can be fetched. For fetches without keys."""
Held = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Which of these ids, that hints name for these times, are in the cache by now. Called under the lock."""


class Prefetcher:
    def __init__(
        self,
        fetch: Fetch,
        keep: Keep,
        space: Space | None = None,
        held: Held | None = None,
        living: Living | None = None,
        *,
        threads: int = 2,
        batch: int = BATCH,
        room: int = _ROOM,
        name: str = "prefetch",
    ) -> None:
        """``batch``: ids in one fetch at most."""
        self._fetch, self._keep, self._space, self._held, self._living = fetch, keep, space, held, living
        self._threads, self._batch, self._room, self._name = threads, batch, room, name
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # entries are gone: for those who wait for that
        self._work_there = threading.Condition(lock)
        self._table = IdTable()
        self._times = np.zeros(self._table.room, np.int64)
        self._in_flight = np.zeros(self._table.room, bool)
        self._pieces = np.zeros(self._table.room, np.int64)  # which call of ``hint`` an entry's keys came with
        self._hinted_at = np.zeros(self._table.room, np.float64)
        self._keys: deque[tuple[int, Callable[[np.ndarray], Any]]] = deque()
        self._piece = 0
        self._next = 0  # no entry before this number is pending
        self._flying = 0
        self._fetching = 0  # workers that are fetching, and ids that were renamed since the first of them began
        self._renamed: list[tuple[np.ndarray, np.ndarray]] = []
        self._workers: list[threading.Thread] = []
        self._closed = False
        self.received = self.dropped = self.fetched = self.failed = 0
        self._fetch_ms: deque[float] = deque(maxlen=_FETCHES_KEPT)

    def hint(self, ids: np.ndarray, times: np.ndarray, keys: Callable[[np.ndarray], Any] | None = None) -> int:
        """An epoch will need these ids. Returns how many of them no hint had named before.

        ``keys`` gives what ``fetch`` needs for some of them, by their positions here.
        """
        with self._changed:
            if self._closed or not len(ids):
                return 0
            self.received += len(ids)
            self._compact()  # also here: where callers claim everything before a worker takes it, no fetch ever ends
            lacking = self._lacking(ids, times)
            if len(lacking) < len(ids):
                ids, times, keys = ids[lacking], times[lacking], None if keys is None else _some_of(keys, lacking)
                if not len(ids):
                    return 0
            room = max(0, self._room - len(self._table))
            if len(ids) > room:
                self.dropped += len(ids) - room
                ids, times = ids[:room], times[:room]
            self._piece += 1
            before = self._table.end
            numbers = self._table.add(ids)
            self._make_room()
            new = slice(before, self._table.end)
            self._times[new] = times.min(initial=0)
            np.maximum.at(self._times, numbers, times)
            self._in_flight[new] = False
            # The position of each new entry's first mention among the ids of this call.
            places = np.full(self._table.end - before, len(ids), np.int64)
            fresh = numbers >= before
            np.minimum.at(places, numbers[fresh] - before, np.flatnonzero(fresh))
            self._pieces[new] = (self._piece << 32) | places
            self._hinted_at[new] = clock.monotonic()
            if self._table.end > before:
                if keys is not None:  # else nobody would ever ask for them
                    self._keys.append((self._piece, keys))
                self._start_workers()
                self._call_worker()
            return self._table.end - before

    def knows(self, ids: np.ndarray) -> np.ndarray:
        """Which of these are pending or in flight."""
        with self._changed:
            known: np.ndarray = self._table.find(ids) >= 0
            return known

    def claim(self, ids: np.ndarray) -> np.ndarray:
        """Which of these ids are in flight. None of the others is pending any more.

        Look into the cache after this call, and not before: a record may arrive there between the two.
        """
        with self._changed:
            flying = np.zeros(len(ids), bool)
            if len(self._table):
                numbers = self._table.find(ids)
                known = np.flatnonzero(numbers >= 0)
                entries = numbers[known]
                flying[known] = self._in_flight[entries]
                self._take_out(np.unique(entries[~flying[known]]))
            return flying

    def wait_for(self, ids: np.ndarray) -> None:
        """After this none of these ids is in flight or pending: look into the cache.

        An id that was hinted anew meanwhile is taken out, as in ``claim``: without space it might never be fetched.
        """
        with self._changed:
            while not self._closed and len(self._table):
                numbers = self._table.find(ids)
                entries = np.unique(numbers[numbers >= 0])
                pending = ~self._in_flight[entries]
                self._take_out(entries[pending])
                if pending.all():
                    return
                self._changed.wait()

    def resume(self) -> None:
        """Some of the cached records have been used: there may be space again."""
        with self._changed:
            if len(self._table):
                self._call_worker()

    def drop_before(self, time: int) -> None:
        """Hints for rows older than this are of no use."""
        with self._changed:
            if len(self._table):
                living = self._table.living()
                self._drop(living[self._times[living] < time])

    def drop(self, ids: np.ndarray) -> None:
        """Nobody will need these ids, each named once: those that are not in flight are not fetched."""
        with self._changed:
            if len(self._table) and len(ids):
                numbers = self._table.find(ids)
                self._drop(numbers[numbers >= 0])

    def ids(self) -> np.ndarray:
        """Of all entries."""
        with self._changed:
            ids: np.ndarray = self._table.ids[self._table.living()].copy()
            return ids

    def rename(self, before: np.ndarray, after: np.ndarray) -> None:
        """The records that these ids, each named once, stood for have other ids now."""
        with self._changed:
            numbers = self._table.find(before)
            there = numbers >= 0
            self._table.rename(numbers[there], after[there])
            if self._fetching and there.any():
                order = np.flatnonzero(there)[np.argsort(before[there])]
                self._renamed.append((before[order], after[order]))

    def drain(self) -> None:
        """Wait until every hinted record is fetched that the cache has room for."""
        with self._changed:
            while not self._closed:
                self._call_worker()  # there may be space that no worker knows of
                if not self._flying and not len(self._pending()):
                    return
                self._changed.wait()

    def fetch_ms(self, share: float) -> float:
        """A percentile of the time from the hint until the record was there, over the last fetches."""
        with self._changed:
            kept = list(self._fetch_ms)
        return float(np.quantile(kept, share)) if kept else 0.0

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._work_there.notify_all()
        for worker in self._workers:
            worker.join()

    # Workers ---------------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        while len(self._workers) < self._threads:
            number = len(self._workers)
            worker = threading.Thread(target=self._work, name=f"tailrace-{self._name}-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not len(picked := self._pending()):
                    self._work_there.wait()
                if self._closed:
                    return
                self._in_flight[picked] = True
                self._flying += len(picked)
                ids, keys = self._table.ids[picked].copy(), self._keys_of(picked)
                self._call_worker()  # another one, where there is more
                since = len(self._renamed)
                self._fetching += 1
            try:
                self._fetch_and_keep(ids, keys, since)
            except Exception:  # whoever needs the records fetches them again, and meets what is wrong
                with self._changed:
                    self.failed += len(ids)
            with self._changed:
                self._flying -= len(ids)
                self._table.drop(self._table.find(self._renamed_since(ids, since)))
                self._fetching -= 1
                if not self._fetching:
                    self._renamed.clear()
                self._compact()
                self._changed.notify_all()

    def _fetch_and_keep(self, ids: np.ndarray, parts: Sequence[_KeyPart], since: int) -> None:
        keys = [keys_of(at) for keys_of, at in parts]
        now, here = ids, np.ones(len(ids), bool)
        while True:
            try:
                found = self._fetch(now[here], keys)
                break
            except Exception:  # some records may lie elsewhere by now, or nowhere
                with self._changed:
                    after = self._renamed_since(ids, since)
                left = here if self._living is None else here & self._living(after)
                if not left.any() or ((left == here).all() and (after == now).all()):
                    raise
                now, here = after, left
        with self._changed:
            ids = self._renamed_since(ids, since)[here]
            entries = self._table.find(ids)
            times = self._times[entries]
            self._fetch_ms.append((clock.monotonic() - float(self._hinted_at[entries].min())) * 1e3)
            self.fetched += len(ids)
            self.failed += len(here) - len(ids)
        self._keep(ids, found, times)

    # Under the lock --------------------------------------------------------------------------------------------------

    def _renamed_since(self, ids: np.ndarray, since: int) -> np.ndarray:
        """The present ids of entries that a worker took when ``_renamed`` had so many items."""
        for before, after in self._renamed[since:]:
            place = np.minimum(np.searchsorted(before, ids), len(before) - 1)
            ids = np.where(before[place] == ids, after[place], ids)
        return ids

    def _lacking(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Positions of the ids that are in flight, pending, or not in the cache."""
        if self._held is None:
            return np.arange(len(ids))
        lacking = self._table.find(ids) >= 0
        lacking[~lacking] = ~self._held(ids[~lacking], times[~lacking])
        return np.flatnonzero(lacking)

    def _call_worker(self) -> None:
        if len(self._pending()):
            self._work_there.notify()

    def _pending(self) -> np.ndarray:
        """The next entries to fetch: the cache has room for them, and they are in the order in which they came."""
        entries = slice(self._next, self._table.end)
        found = self._next + np.flatnonzero(self._table.alive[entries] & ~self._in_flight[entries])
        self._next = int(found[0]) if len(found) else self._table.end
        if self._space is not None and len(found):
            found = found[: max(0, self._space() - self._flying)]
        return found[: self._batch]

    def _drop(self, entries: np.ndarray) -> None:
        pending = entries[~self._in_flight[entries]]
        self.dropped += len(pending)
        self._take_out(pending)

    def _take_out(self, entries: np.ndarray) -> None:
        """Nobody will fetch these pending entries, each named once: those who wait for them need not."""
        if len(entries):
            self._table.drop(entries)
            self._changed.notify_all()

    def _keys_of(self, picked: np.ndarray) -> list[_KeyPart]:
        """The parts of the keys of entries, in their order: calls of ``hint`` have made entries one after the other.

        They are not asked for here: that copies, and may fail.
        """
        if not self._keys:
            return []
        calls, known = self._pieces[picked] >> 32, dict(self._keys)
        edges = [0, *(np.flatnonzero(calls[1:] != calls[:-1]) + 1).tolist(), len(picked)]
        spans = [picked[low:high] for low, high in pairwise(edges)]
        return [(known[int(self._pieces[own[0]] >> 32)], self._pieces[own] & 0xFFFFFFFF) for own in spans]

    def _make_room(self) -> None:
        more = self._table.room - len(self._times)
        if more > 0:
            self._times, self._in_flight, self._pieces, self._hinted_at = (
                np.concatenate([column, np.zeros(more, column.dtype)])
                for column in (self._times, self._in_flight, self._pieces, self._hinted_at)
            )

    def _compact(self) -> None:
        if 2 * self._table.dead <= self._table.end:
            return
        kept = self._table.compact()
        for column in (self._times, self._in_flight, self._pieces, self._hinted_at):
            column[: len(kept)] = column[kept]
        self._next = 0
        oldest = int(self._pieces[: len(kept)].min(initial=self._piece << 32) >> 32) if len(kept) else self._piece + 1
        while self._keys and self._keys[0][0] < oldest:
            self._keys.popleft()


def _some_of(keys: Callable[[np.ndarray], Any], chosen: np.ndarray) -> Callable[[np.ndarray], Any]:
    """A function that gives the keys of the chosen positions only."""
    return lambda at: keys(chosen[at])
