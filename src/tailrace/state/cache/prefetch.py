"""The prefetching manager: fetches what hints foretell, before it is asked for.

Invariants
- The buffer has at most one entry for an id, with the latest time that a hint gave it. An entry is *unprocessed* until
  it is asked for, *in flight* while it is fetched, and gone when what was fetched is kept elsewhere.
- Nobody fetches an id that is in flight: who needs it waits (``wait_for``). Who needs an unprocessed one takes it out
  (``claim``), and fetches it with all else that is missing, at once: what is in flight is waited for after that.
- Where asking takes no time (``ask``), entries are in flight from the hint on, whether a worker is there or not. Where
  it is known when they will be there, a worker comes then, and not for each hint: each time costs it, and all others
  who want the interpreter, much the same whether it fetches ten or a thousand. Who needs one and can finish it without
  asking again takes it over (``take_over``), rather than wait for a worker that waits for a processor; what the worker
  has of it is not kept then.
- What is kept is not fetched again (``held``): who looks where it is kept before a hint may look before it lands there,
  and give the hint after it has.
- A fetch that fails leaves nothing: whoever needs the id fetches it again and meets the error where it can be told.
- The buffer is bounded; hints beyond its room are dropped, and counted.
- No more is asked for than can be kept (``space``): the rest stays unprocessed, for who needs it.

Threads: any. One lock, never held over a fetch. Workers start with the first hint and end with ``close``.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tailrace.env import clock
from tailrace.state.cache.id_table import IdTable

_UNPROCESSED, _ASKED, _FETCHING, _LANDING, _TAKEN = range(5)
"""All but the first are in flight: asked for, and no worker has it yet; a worker has it; it is being put away; somebody
else will finish it, while a worker still has it."""
_FETCHES_KEPT = 64
_ROOM = 1 << 20
_GATHERED_S = 0.006
"""What is there waits so long, at most, for more that will be soon."""
_ASKED_TOGETHER = 512
"""Of more than this, the first are there before the last."""

Ask = Callable[[int], float]
"""Ask for so many: tells when they will be there. Called under the lock, and so quick."""
Fetch = Callable[[np.ndarray, list[Any], float], Any]
"""What is stored under these ids, in any form; beside them their keys, a part for each call of ``hint`` that gave some,
in their order (none where none were given), and when what was asked for is there (0: it was not asked for yet)."""
Keep = Callable[[np.ndarray, Any, np.ndarray, np.ndarray], None]
"""Put away what was fetched: ids, what ``Fetch`` gave, event times, and which of them are still wanted."""
Space = Callable[[], int]
"""How many more can be kept. Called under the lock."""
Held = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Which of these ids, that hints name for these times, are kept by now. Called under the lock."""


class Prefetcher:
    def __init__(
        self,
        fetch: Fetch,
        keep: Keep,
        space: Space | None = None,
        ask: Ask | None = None,
        held: Held | None = None,
        *,
        threads: int = 2,
        batch: int = 4096,
        room: int = _ROOM,
        name: str = "prefetch",
    ) -> None:
        """``batch``: ids in one fetch at most."""
        self._fetch, self._keep, self._space, self._ask, self._held = fetch, keep, space, ask, held
        self._threads, self._batch, self._room, self._name = threads, batch, room, name
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # entries are gone: for who waits for that
        self._work_there = threading.Condition(lock)
        self._table = IdTable()
        self._times = np.zeros(self._table.room, np.int64)
        self._stages = np.zeros(self._table.room, np.int8)
        self._pieces = np.zeros(self._table.room, np.int64)  # which call of ``hint`` an entry's keys came with
        self._came = np.zeros(self._table.room, np.float64)  # when that was
        self._due = np.zeros(self._table.room, np.float64)  # when it will be there, once it is asked for
        self._keys: deque[tuple[int, Callable[[np.ndarray], Any]]] = deque()
        self._piece = 0
        self._next = 0  # no entry before this number is for a worker to take
        self._flying = 0
        self._fetching = 0  # workers that are at it, and what was renamed since the first of them began
        self._renamed: list[tuple[np.ndarray, np.ndarray]] = []
        self._minded_until = math.inf  # when a worker will look by itself at what is asked for; none does: never
        self._workers: list[threading.Thread] = []
        self._closed = False
        self.received = self.dropped = self.fetched = self.failed = 0
        self._fetch_ms: deque[float] = deque(maxlen=_FETCHES_KEPT)

    def hint(self, ids: np.ndarray, times: np.ndarray, keys: Callable[[np.ndarray], Any] | None = None) -> int:
        """These ids will be asked for: tells how many nobody had foretold before.

        ``keys`` gives what ``fetch`` needs for some of them, by their places here.
        """
        with self._changed:
            if self._closed or not len(ids):
                return 0
            self.received += len(ids)
            self._compact()  # here too: where all is taken out before a worker comes to it, none ever ends a fetch
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
            self._stages[new] = _UNPROCESSED
            # The place of each new entry's first mention among the ids of this call.
            places = np.full(self._table.end - before, len(ids), np.int64)
            fresh = numbers >= before
            np.minimum.at(places, numbers[fresh] - before, np.flatnonzero(fresh))
            self._pieces[new] = (self._piece << 32) | places
            self._came[new] = clock.monotonic()
            self._due[new] = 0.0
            if keys is not None:
                self._keys.append((self._piece, keys))
            if self._table.end > before:
                self._ask_for_some()
                self._start_workers()
                self._call_worker()
            return self._table.end - before

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
                flying[known] = self._stages[entries] != _UNPROCESSED
                self._take_out(np.unique(entries[~flying[known]]))
            return flying

    def take_over(self, ids: np.ndarray) -> tuple[np.ndarray, float]:
        """Which of these ids (each named once) the caller finishes itself, and when what was asked for is there.

        The others are not in flight any more, or will not be soon: ``wait_for`` them. None, where asking takes time.
        """
        with self._changed:
            taken = np.zeros(len(ids), bool)
            if self._ask is None or not len(self._table):
                return taken, 0.0
            numbers = self._table.find(ids)
            known = np.flatnonzero(numbers >= 0)
            stages = self._stages[numbers[known]]
            taken[known] = (stages == _ASKED) | (stages == _FETCHING)
            due = float(self._due[numbers[taken]].max(initial=0.0))
            self._stages[numbers[known[stages == _FETCHING]]] = _TAKEN
            asked = numbers[known[stages == _ASKED]]
            if len(asked):
                there = max(clock.monotonic(), float(self._due[asked].max()))
                self._fetch_ms.append((there - float(self._came[asked].min())) * 1e3)
            self._flying -= len(asked)
            self.fetched += len(asked)
            self._table.drop(asked)
            self._changed.notify_all()
            return taken, due

    def wait_for(self, ids: np.ndarray) -> None:
        """After this none of these ids is in flight, nor foretold: ask where fetched ones are kept.

        One that was foretold anew meanwhile is taken out, as in ``claim``: it might never be fetched for want of space.
        """
        with self._changed:
            while not self._closed and len(self._table):
                numbers = self._table.find(ids)
                entries = np.unique(numbers[numbers >= 0])
                hinted = self._stages[entries] == _UNPROCESSED
                self._take_out(entries[hinted])
                if hinted.all():
                    return
                self._changed.wait()

    def resume(self) -> None:
        """Some of what was kept has been used: there may be space again."""
        with self._changed:
            if len(self._table):
                self._ask_for_some()
                self._call_worker()

    def drop_before(self, time: int) -> None:
        """Hints for rows older than this are of no use."""
        with self._changed:
            if not len(self._table):
                return
            living = self._table.living()
            self._remove(living[self._times[living] < time])

    def drop(self, ids: np.ndarray) -> None:
        """Nobody will ask for these, each named once: where no worker has begun, none will be fetched."""
        with self._changed:
            if len(self._table) and len(ids):
                numbers = self._table.find(ids)
                self._remove(numbers[numbers >= 0])

    def _remove(self, entries: np.ndarray) -> None:
        """Under the lock."""
        going = entries[self._stages[entries] <= _ASKED]
        self.dropped += len(going)
        self._flying -= int((self._stages[going] == _ASKED).sum())
        self._take_out(going)

    def ids(self) -> np.ndarray:
        """Of all entries."""
        with self._changed:
            ids: np.ndarray = self._table.ids[self._table.living()].copy()
            return ids

    def rename(self, before: np.ndarray, after: np.ndarray) -> None:
        """What these ids, each named once, stood for has others now."""
        with self._changed:
            numbers = self._table.find(before)
            there = numbers >= 0
            self._table.rename(numbers[there], after[there])
            if self._fetching and there.any():
                order = np.flatnonzero(there)[np.argsort(before[there])]
                self._renamed.append((before[order], after[order]))

    def drain(self) -> None:
        """Wait until everything foretold is fetched that can be kept."""
        with self._changed:
            while not self._closed:
                self._ask_for_some()  # there may be space that no worker knows of
                self._call_worker()
                if not self._flying and not len(self._unprocessed()):
                    return
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
            self._work_there.notify_all()
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
                while not self._closed and not len(picked := self._picked()):
                    self._wait_for_work()
                if self._closed:
                    return
                self._stages[picked] = _FETCHING
                ids, keys = self._table.ids[picked].copy(), self._keys_of(picked)
                due = float(self._due[picked].max())
                self._call_worker()  # another one, where there is more
                since = len(self._renamed)
                self._fetching += 1
            try:
                self._fetch_and_keep(ids, keys, due, since)
            except Exception:  # whoever needs the rows fetches them again, and meets what is wrong
                with self._changed:
                    self.failed += len(ids)
            with self._changed:
                self._flying -= len(ids)
                self._table.drop(self._table.find(self._named(ids, since)))
                self._fetching -= 1
                if not self._fetching:
                    self._renamed.clear()
                self._compact()
                if self._ask_for_some():
                    self._call_worker()
                self._changed.notify_all()

    def _fetch_and_keep(self, ids: np.ndarray, keys: list[Any], due: float, since: int) -> None:
        try:
            found = self._fetch(ids, keys, due)
        except Exception:
            with self._changed:
                now = self._named(ids, since)
            if (now == ids).all():
                raise
            found = self._fetch(now, keys, due)  # it lies elsewhere by now
        with self._changed:
            ids = self._named(ids, since)
            entries = self._table.find(ids)
            times = self._times[entries]
            wanted = self._stages[entries] != _TAKEN
            self._stages[entries[wanted]] = _LANDING
            self._fetch_ms.append((clock.monotonic() - float(self._came[entries].min())) * 1e3)
            self.fetched += len(ids)
        self._keep(ids, found, times, wanted)

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _named(self, ids: np.ndarray, since: int) -> np.ndarray:
        """What ids are called by now that a worker has taken when there were so many of ``_renamed``."""
        for before, after in self._renamed[since:]:
            place = np.minimum(np.searchsorted(before, ids), len(before) - 1)
            ids = np.where(before[place] == ids, after[place], ids)
        return ids

    def _lacking(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Places of the ids that are in flight, hinted, or kept nowhere: none has landed unseen."""
        if self._held is None:
            return np.arange(len(ids))
        open_ = self._table.find(ids) >= 0
        open_[~open_] = ~self._held(ids[~open_], times[~open_])
        return np.flatnonzero(open_)

    def _picked(self) -> np.ndarray:
        """The next entries for a worker, in flight. Of those that were asked for, what is there."""
        if self._ask is None:
            picked = self._unprocessed()
            self._flying += len(picked)
            return picked
        now = clock.monotonic()
        asked = self._with_stage(_ASKED)[: self._batch] if self._next_ready() <= now else np.empty(0, np.int64)
        there: np.ndarray = asked[self._due[asked] <= now]
        return there

    def _next_ready(self) -> float:
        """When a worker is to come for what was asked for: all of it is there, or the first has been for a while."""
        if self._ask is None or not len(asked := self._with_stage(_ASKED)[: self._batch]):
            return math.inf
        due = self._due[asked]
        return min(float(due.max()), float(due.min()) + _GATHERED_S)

    def _wait_for_work(self) -> None:
        """One worker sees to it that what is asked for is fetched in time, others wait until they are called."""
        ready = self._next_ready()
        if ready >= self._minded_until:
            self._work_there.wait()
            return
        self._minded_until = ready
        self._work_there.wait(max(0.0, ready - clock.monotonic()))
        self._minded_until = math.inf

    def _call_worker(self) -> None:
        """Where there is something to do that no worker will look at by itself in time."""
        if self._ask is None:
            if len(self._that_can_be_kept()):
                self._work_there.notify()
        elif self._next_ready() < self._minded_until:
            self._work_there.notify()

    def _ask_for_some(self) -> bool:
        """Ask for what is unprocessed and can be kept, where that takes no time: whether there was any."""
        if self._ask is None:
            return False
        found = self._that_can_be_kept()
        together = min(self._batch, _ASKED_TOGETHER)
        for first in range(0, len(found), together):
            some = found[first : first + together]
            self._due[some] = self._ask(len(some))
        self._stages[found] = _ASKED
        self._flying += len(found)
        return len(found) > 0

    def _unprocessed(self) -> np.ndarray:
        """The next entries to fetch."""
        return self._that_can_be_kept()[: self._batch]

    def _that_can_be_kept(self) -> np.ndarray:
        """The unprocessed entries that there is space for, in the order in which they came."""
        found = self._with_stage(_UNPROCESSED)
        if self._space is not None and len(found):
            found = found[: max(0, self._space() - self._flying)]
        return found

    def _take_out(self, entries: np.ndarray) -> None:
        """Nobody fetches these, each named once, any more: who waits for them to be fetched need not."""
        if len(entries):
            self._table.drop(entries)
            self._changed.notify_all()

    def _with_stage(self, stage: int) -> np.ndarray:
        """The living entries of one of the stages before a worker has them, in the order in which they came."""
        entries = slice(self._next, self._table.end)
        open_ = self._next + np.flatnonzero(self._table.alive[entries] & (self._stages[entries] <= _ASKED))
        self._next = int(open_[0]) if len(open_) else self._table.end
        found: np.ndarray = open_[self._stages[open_] == stage]
        return found

    def _keys_of(self, picked: np.ndarray) -> list[Any]:
        """The parts of the keys of entries, in their order: calls of ``hint`` have made entries one after the other."""
        if not self._keys:
            return []
        calls, known = self._pieces[picked] >> 32, dict(self._keys)
        edges = [0, *(np.flatnonzero(calls[1:] != calls[:-1]) + 1).tolist(), len(picked)]
        spans = [picked[low:high] for low, high in pairwise(edges)]
        return [known[int(self._pieces[own[0]] >> 32)](self._pieces[own] & 0xFFFFFFFF) for own in spans]

    def _make_room(self) -> None:
        room = self._table.room
        if len(self._times) < room:
            self._times = np.concatenate([self._times, np.zeros(room - len(self._times), np.int64)])
            self._stages = np.concatenate([self._stages, np.zeros(room - len(self._stages), np.int8)])
            self._pieces = np.concatenate([self._pieces, np.zeros(room - len(self._pieces), np.int64)])
            self._came = np.concatenate([self._came, np.zeros(room - len(self._came), np.float64)])
            self._due = np.concatenate([self._due, np.zeros(room - len(self._due), np.float64)])

    def _compact(self) -> None:
        if 2 * self._table.dead <= self._table.end:
            return
        kept = self._table.compact()
        for column in (self._times, self._stages, self._pieces, self._came, self._due):
            column[: len(kept)] = column[kept]
        self._next = 0
        oldest = int(self._pieces[: len(kept)].min(initial=self._piece << 32) >> 32) if len(kept) else self._piece + 1
        while self._keys and self._keys[0][0] < oldest:
            self._keys.popleft()


def _some_of(keys: Callable[[np.ndarray], Any], chosen: np.ndarray) -> Callable[[np.ndarray], Any]:
    """What gives keys by their places, for some of them."""
    return lambda at: keys(chosen[at])
