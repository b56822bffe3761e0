"""The prefetching manager: fetches what hints foretell, before it is asked for.

Invariants
- The buffer has at most one entry for an id, with the latest time that a hint gave it. An entry is *unprocessed* until
  a worker takes it, *in flight* while it is fetched, and gone when what was fetched is kept elsewhere.
- Nobody fetches an id that is in flight: who needs it waits (``wait_for``). Who needs an unprocessed one takes it out
  (``claim``), and fetches it with all else that is missing, at once: what is in flight is waited for after that.
- A fetch that fails leaves nothing: whoever needs the id fetches it again and meets the error where it can be told.
- The buffer is bounded; hints beyond its room are dropped, and counted.
- No more is fetched than can be kept (``space``): the rest stays unprocessed, for who needs it.

Threads: any. One lock, never held over a fetch. Workers start with the first hint and end with ``close``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tailrace.cache.id_table import IdTable
from tailrace.env import clock

_UNPROCESSED, _IN_FLIGHT = 0, 1
_FETCHES_KEPT = 64
_ROOM = 1 << 20

Fetch = Callable[[np.ndarray, Any], Any]
"""What is stored under these ids, in any form; beside them what ``hint`` was given for them."""
Keep = Callable[[np.ndarray, Any, np.ndarray], None]
"""Put away what was fetched: ids, what ``Fetch`` gave, event times."""
Space = Callable[[], int]
"""How many more can be kept. Called under the lock."""


class Prefetcher:
    def __init__(
        self,
        fetch: Fetch,
        keep: Keep,
        space: Space | None = None,
        *,
        threads: int = 2,
        batch: int = 512,
        room: int = _ROOM,
        name: str = "prefetch",
    ) -> None:
        """``batch``: ids in one fetch at most, so that several workers share a burst."""
        self._fetch, self._keep, self._space = fetch, keep, space
        self._threads, self._batch, self._room, self._name = threads, batch, room, name
        self._changed = threading.Condition()
        self._table = IdTable()
        self._times = np.zeros(self._table.room, np.int64)
        self._stages = np.zeros(self._table.room, np.int8)
        self._pieces = np.zeros(self._table.room, np.int64)  # which call of ``hint`` an entry's keys came with
        self._came = np.zeros(self._table.room, np.float64)  # when that was
        self._keys: deque[tuple[int, Callable[[np.ndarray], Any]]] = deque()
        self._piece = 0
        self._next = 0  # no entry before this number is unprocessed
        self._flying = 0
        self._workers: list[threading.Thread] = []
        self._closed = False
        self.received = self.dropped = self.fetched = self.failed = 0
        self._fetch_ms: deque[float] = deque(maxlen=_FETCHES_KEPT)

    def hint(self, ids: np.ndarray, times: np.ndarray, keys: Callable[[np.ndarray], Any] | None = None) -> None:
        """These ids will be asked for. ``keys`` gives what ``fetch`` needs for some of them, by their places here."""
        with self._changed:
            if self._closed or not len(ids):
                return
            self.received += len(ids)
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
            self._stages[new] = _UNPROCESSED
            # The place of each new entry's first mention among the ids of this call.
            places = np.full(self._table.end - before, len(ids), np.int64)
            fresh = numbers >= before
            np.minimum.at(places, numbers[fresh] - before, np.flatnonzero(fresh))
            self._pieces[new] = (self._piece << 32) | places
            self._came[new] = clock.monotonic()
            if keys is not None:
                self._keys.append((self._piece, keys))
            if self._table.end > before:
                self._start_workers()
                self._changed.notify_all()

    def knows(self, ids: np.ndarray) -> np.ndarray:
        """Which of these are foretold already, or in flight."""
        with self._changed:
            known: np.ndarray = self._table.find(ids) >= 0
            return known

    def claim(self, ids: np.ndarray) -> np.ndarray:
        """Which of these ids are in flight. Of the others none is foretold any more.

        Ask where fetched ones are kept after this, and not before: between the two one may land.
        """
        with self._changed:
            flying = np.zeros(len(ids), bool)
            if len(self._table):
                numbers = self._table.find(ids)
                known = np.flatnonzero(numbers >= 0)
                entries = numbers[known]
                flying[known] = self._stages[entries] == _IN_FLIGHT
                self._table.drop(np.unique(entries[self._stages[entries] == _UNPROCESSED]))
            return flying

    def wait_for(self, ids: np.ndarray) -> None:
        """After this none of these ids is in flight: ask where fetched ones are kept."""
        with self._changed:
            while not self._closed and len(self._table) and (self._table.find(ids) >= 0).any():
                self._changed.wait()

    def resume(self) -> None:
        """Some of what was kept has been used: there may be space again."""
        with self._changed:
            if len(self._table):
                self._changed.notify_all()

    def drop_before(self, time: int) -> None:
        """Hints for rows older than this are of no use."""
        with self._changed:
            if not len(self._table):
                return
            living = self._table.living()
            old = living[(self._times[living] < time) & (self._stages[living] == _UNPROCESSED)]
            self.dropped += len(old)
            self._table.drop(old)

    def settle(self) -> None:
        """Wait until everything foretold is fetched that can be kept."""
        with self._changed:
            self._changed.notify_all()  # there may be space that no worker knows of
            while not self._closed and (self._flying or len(self._unprocessed())):
                self._changed.wait()

    def fetch_ms(self, share: float) -> float:
        """A percentile of what the last fetches took, from the hint until what it named was there."""
        with self._changed:
            kept = list(self._fetch_ms)
        return float(np.quantile(kept, share)) if kept else 0.0

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join()

    # -- workers ------------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        while len(self._workers) < self._threads:
            number = len(self._workers)
            worker = threading.Thread(target=self._work, name=f"tailrace-{self._name}-{number}", daemon=True)
            self._workers.append(worker)
            worker.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not len(picked := self._unprocessed()):
                    self._changed.wait()
                if self._closed:
                    return
                self._stages[picked] = _IN_FLIGHT
                self._flying += len(picked)
                ids, keys = self._table.ids[picked].copy(), self._keys_of(picked)
            try:
                self._fetch_and_keep(ids, keys)
            except Exception:  # whoever needs the rows fetches them again, and meets what is wrong
                with self._changed:
                    self.failed += len(ids)
            with self._changed:
                self._flying -= len(ids)
                self._table.drop(self._table.find(ids))
                self._tidy()
                self._changed.notify_all()

    def _fetch_and_keep(self, ids: np.ndarray, keys: Any) -> None:
        found = self._fetch(ids, keys)
        with self._changed:
            entries = self._table.find(ids)
            times = self._times[entries]
            self._fetch_ms.append((clock.monotonic() - float(self._came[entries].min())) * 1e3)
            self.fetched += len(ids)
        self._keep(ids, found, times)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _unprocessed(self) -> np.ndarray:
        """The next entries to fetch, in the order in which they came; where they have keys, of one call of ``hint``."""
        end = self._table.end
        open_ = self._table.alive[self._next : end] & (self._stages[self._next : end] == _UNPROCESSED)
        found = self._next + np.flatnonzero(open_)
        self._next = int(found[0]) if len(found) else end
        count = self._batch
        if self._space is not None and len(found):
            count = min(count, max(0, self._space() - self._flying))
        picked: np.ndarray = found[:count]
        if self._keys and len(picked):
            picked = picked[self._pieces[picked] >> 32 == self._pieces[picked[0]] >> 32]
        return picked

    def _keys_of(self, picked: np.ndarray) -> Any:
        piece = int(self._pieces[picked[0]] >> 32)
        for number, keys in self._keys:
            if number == piece:
                return keys(self._pieces[picked] & 0xFFFFFFFF)
        return None

    def _make_room(self) -> None:
        room = self._table.room
        if len(self._times) < room:
            self._times = np.concatenate([self._times, np.zeros(room - len(self._times), np.int64)])
            self._stages = np.concatenate([self._stages, np.zeros(room - len(self._stages), np.int8)])
            self._pieces = np.concatenate([self._pieces, np.zeros(room - len(self._pieces), np.int64)])
            self._came = np.concatenate([self._came, np.zeros(room - len(self._came), np.float64)])

    def _tidy(self) -> None:
        if 2 * self._table.dead <= self._table.end:
            return
        kept = self._table.compact()
        for column in (self._times, self._stages, self._pieces, self._came):
            column[: len(kept)] = column[kept]
        self._next = 0
        oldest = int(self._pieces[: len(kept)].min(initial=self._piece << 32) >> 32) if len(kept) else self._piece + 1
        while self._keys and self._keys[0][0] < oldest:
            self._keys.popleft()
