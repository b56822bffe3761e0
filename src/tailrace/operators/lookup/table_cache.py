"""What a lookup table says of keys: copies in a cache, prefetched where hints named them, asked for where not.

Invariants
- A copy stands for what the table said of exactly its key, also that it has no row. Copies are found by the hash of the
  key; where two keys share one, the copy of the other is not taken for its own, and the key is asked for directly.
- Nobody asks for a key that is in flight: who needs it waits.
- Only asking, and waiting for what is on its way, counts as waiting: copying what is here does not.
- What is found depends on the table alone, never on what lies in the cache. Where the table changes, a copy is used
  for as long as the table's description says, and its key is then asked for again.

Threads: ``found`` one at a time; hints from any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tailrace.env import clock
from tailrace.operators.lookup.backend import Asker
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.rows.keyed import keyed
from tailrace.state.cache.prefetch import BATCH, Prefetcher
from tailrace.state.cache.record_cache import RecordCache
from tailrace.state.layout import HASH, PANE, VALID, RecordLayout, record_layout
from tailrace.state.metrics import Metrics
from tailrace.state.rows import key_kernels as pk
from tailrace.state.rows.arrange import take
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows, concat_rows, plain
from tailrace.state.sections.sections import ValidBits, decoded

_T = TypeVar("_T")


class TableCopies:
    def __init__(self, spec: LookupSpec, asker: Asker, capacity_bytes: int, policy: str = "timestamp") -> None:
        self._asker, self._kept = asker, spec.cached_layout()
        self._keys = record_layout(spec.keys, [], ansi=False)
        max_age = spec.table.max_age
        max_age_s = None if max_age is None else max_age / 1e6
        self._cache = RecordCache(self._kept, capacity_bytes, policy, max_age_s=max_age_s)
        batch = min(BATCH, asker.piece)
        cache = self._cache
        self._ahead = Prefetcher(self._fetched, self._keep, cache.room, cache.hint, batch=batch, name="lookup")
        self._asked = self._missed = self._late = 0
        self._wait_ms = 0.0
        self._begun = 0  # keys that were not there when ``begin`` was called

    def distinct(self, parts: Sequence[Rows]) -> tuple[Rows, list[np.ndarray]]:
        """The keys of several sets of distinct keys, each once, and which of them those of each set are.

        Sets are rows of the operator's layout; what comes out has words of keys alone.
        """
        own = [Rows(self._key_words(part.words), part.heap) for part in parts]
        if len(own) == 1:
            return own[0], [np.arange(len(own[0]))]
        together = plain(concat_rows([take(part, np.arange(len(part)), self._keys) for part in own], self._keys))
        groups = keyed(together, self._keys)
        ends = np.cumsum([len(part) for part in own])
        return Rows(together.words[groups.firsts], together.heap), np.split(groups.numbers, ends[:-1])

    def begin(self, keys: Rows, time: int) -> None:
        """Begin to fetch what the cache does not have of these keys, of which ``found`` will be asked next."""
        ids, first = np.unique(keys.words[:, HASH], return_index=True)
        times = np.full(len(ids), time, np.int64)
        self._begun = self._prefetch(ids, times, lambda at: take(keys, first[at], self._keys))

    # Asking ----------------------------------------------------------------------------------------------------------

    def found(self, keys: Rows, time: int) -> Rows:
        """What the table says of distinct keys (words of keys alone, none null), in their order."""
        count = len(keys)
        ids = np.ascontiguousarray(keys.words[:, HASH])
        self._asked += count
        parts: list[Rows] = []
        places: list[np.ndarray] = []
        begun, self._begun = self._begun, 0
        self._missed += begun
        if begun and not self._asker.mapped:
            self._waiting(self._ahead.drain)
        flying = self._ahead.claim(ids)
        missing = self._cached(keys, ids, np.arange(count), time, parts, places)
        coming, missing = missing[flying[missing]], missing[~flying[missing]]
        self._missed += 0 if begun else len(missing)
        self._late += 0 if begun else len(coming)  # what was begun counts as missed
        if len(missing):
            self._ask_and_keep(keys, ids, missing, time, parts, places)
        if len(coming):
            self._waiting(lambda: self._ahead.wait_for(ids[coming]))
            failed = self._cached(keys, ids, coming, time, parts, places)
            if len(failed):
                self._ask_and_keep(keys, ids, failed, time, parts, places)
        self._ahead.resume()
        order = np.empty(count, np.int64)
        order[np.concatenate(places) if places else np.empty(0, np.int64)] = np.arange(count)
        whole = parts[0] if len(parts) == 1 else concat_rows(parts, self._kept)
        return take(plain(whole), order, self._kept)

    def _cached(
        self,
        keys: Rows,
        ids: np.ndarray,
        asked: np.ndarray,
        time: int,
        parts: list[Rows],
        places: list[np.ndarray],
    ) -> np.ndarray:
        """Take what is in the cache; gives the places that are left."""
        rows, there = self._cache.get(ids[asked], time)
        at = asked[there]
        same = np.zeros(len(at), bool)
        if len(at):
            wanted = take(keys, at, self._keys)
            pk.same_keys(
                rows.words, rows.heap, wanted.words, wanted.heap, self._keys.key_words, self._keys.key_mask, same
            )
            parts.append(rows if same.all() else take(rows, np.flatnonzero(same), self._kept))
            places.append(at[same])
        left = np.ones(len(asked), bool)
        left[np.flatnonzero(there)[same]] = False
        remaining: np.ndarray = asked[left]
        return remaining

    def _ask_and_keep(
        self,
        keys: Rows,
        ids: np.ndarray,
        wanted: np.ndarray,
        time: int,
        parts: list[Rows],
        places: list[np.ndarray],
    ) -> None:
        rows = self._waiting(lambda: self._ask(take(keys, wanted, self._keys), patient=True))
        self._cache.put(*_first_of_each(ids[wanted], rows, self._kept, time))
        parts.append(rows)
        places.append(wanted)

    def _waiting(self, wait: Callable[[], _T]) -> _T:
        """What is done while rows wait."""
        began = clock.monotonic()
        try:
            return wait()
        finally:
            self._wait_ms += (clock.monotonic() - began) * 1e3

    def _ask(self, keys: Rows, *, patient: bool) -> Rows:
        """What the table says of these keys (words of keys alone), as records to keep."""
        valid = ValidBits(keys)
        columns = [decoded(keys, valid, place) for place in self._keys.keys]
        answer = self._asker.ask(columns, patient=patient)
        builder = RowsBuilder(len(keys), self._kept)
        for column, place in zip(columns, self._kept.keys, strict=True):
            builder.put(column, place.type, place.word, place.bit)
        present = self._kept.accumulators[0]
        builder.set_bit(present.bit, None)
        builder.words[:, present.word] = answer.there
        for value, at in zip(answer.values, self._kept.accumulators[1:], strict=True):
            builder.put(value, at.type, at.word, at.bit)
        builder.words[:, HASH] = keys.words[:, HASH]
        return builder.finish()

    def _key_words(self, words: np.ndarray) -> np.ndarray:
        """Keys lie first in every layout, and their bits too."""
        own = np.ascontiguousarray(words[:, : self._keys.words])
        own = own.copy() if np.shares_memory(own, words) else own
        own[:, VALID] &= self._keys.key_mask
        own[:, PANE] = 0
        return own

    # Hints -----------------------------------------------------------------------------------------------------------

    def hint_rows(self, keys: Rows, time: int) -> None:
        """Distinct keys (words of the operator's layout, none null) will be asked for, up to this event time."""
        keys = Rows(self._key_words(keys.words), keys.heap)
        ids = np.ascontiguousarray(keys.words[:, HASH])
        self._prefetch(ids, np.full(len(ids), time, np.int64), lambda at: take(keys, at, self._keys))

    def hint_keys(self, ids: np.ndarray, times: np.ndarray, keys: pa.RecordBatch | None) -> None:
        if keys is None:
            return
        builder = RowsBuilder(len(ids), self._keys)
        for column, place in zip(keys.columns, self._keys.keys, strict=True):
            builder.put(column, place.type, place.word, place.bit)
        rows = builder.finish()
        rows.words[:, HASH] = ids
        known = np.flatnonzero((rows.words[:, VALID] & self._keys.key_mask) == self._keys.key_mask)
        self._prefetch(ids[known], times[known], lambda at: take(rows, known[at], self._keys))

    def lacking(self, ids: np.ndarray, times: np.ndarray | None) -> np.ndarray:
        """Which of these keys, by their hashes, would be fetched if a hint named them. Those that are there stay."""
        there = self._cache.holds(ids) if times is None else self._cache.hint(ids, times)
        needed: np.ndarray = ~(there | self._ahead.knows(ids))
        return needed

    def drop_hints(self, before: int) -> None:
        """Hints for rows older than this are of no use any more: without room they would wait for ever."""
        self._ahead.drop_before(before)

    def _prefetch(self, ids: np.ndarray, times: np.ndarray, keys: Callable[[np.ndarray], Rows]) -> int:
        """Gives how many of them are not there yet."""
        wanted = np.flatnonzero(~self._cache.hint(ids, times))
        if len(wanted):
            self._ahead.hint(ids[wanted], times[wanted], lambda at: keys(wanted[at]))
        return len(wanted)

    def _fetched(self, ids: np.ndarray, keys: list[Rows]) -> Rows:
        together = keys[0] if len(keys) == 1 else concat_rows(keys, self._keys)
        return self._ask(together, patient=False)  # whoever needs them will have patience

    def _keep(self, ids: np.ndarray, rows: Rows, times: np.ndarray) -> None:
        self._cache.put(ids, rows, times, hinted=True)

    # About it --------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return self._cache.nbytes

    def __len__(self) -> int:
        return len(self._cache)

    @property
    def fetched(self) -> int:
        """Keys that the table was asked for so far, by hints or not."""
        return self._missed + self._ahead.fetched

    def drain(self) -> None:
        """Wait until all prefetches have finished; for tests and benches."""
        self._ahead.drain()

    def metrics(self) -> Metrics:
        ahead = self._ahead
        return {
            "spilledHits": float(self._asked - self._missed),
            "spilledMisses": float(self._missed),
            "spilledLate": float(self._late),
            "spilledWaitMs": self._wait_ms,
            "spilledFetchMsP99": ahead.fetch_ms(0.99),
            "hintsReceived": float(ahead.received),
            "hintsDropped": float(ahead.dropped),
            "hintsFetched": float(ahead.fetched),
            "hintsFailed": float(ahead.failed),
            "hintsWasted": float(self._cache.wasted),
            "hintsPending": float(self._cache.pending),
            "cacheBytes": float(self.nbytes),
        }

    def give_up(self) -> None:
        """Wait for the table no more."""
        self._asker.give_up()

    def close(self) -> None:
        self.give_up()
        self._ahead.close()
        self._asker.close()


def _first_of_each(ids: np.ndarray, rows: Rows, layout: RecordLayout, time: int) -> tuple[np.ndarray, Rows, np.ndarray]:
    """Of keys that share a hash, one: a cache has one entry for an id."""
    own, first = np.unique(ids, return_index=True)
    if len(own) < len(ids):
        rows, ids = take(rows, first, layout), own
    return ids, rows, np.full(len(ids), time, np.int64)
