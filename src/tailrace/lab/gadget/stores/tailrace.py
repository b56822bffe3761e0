"""Tailrace's own stores as connectors: read-modify-write, append-aligned and append-unaligned.

A micro-batch is what the stores are made for: it is combined (see `combine`) and each store is called once or twice,
with columns. The append stores keep what is only appended to; a value that is read and stays moves to a
read-modify-write store beside them, as the engine keeps the ends of open sessions apart from their rows. So every
connector does all accesses, and the pattern decides where merges go:

- RMW: into the record, which is replaced;
- AAR: to the window of the key (`Settings.panes`); the first get or delete of a key takes its window as a whole, and
  all earlier ones, since windows end in order;
- AUR: to the list of the key, which a get or delete takes.

A scalar call is a batch of one: there is no other way in, since nothing of the engine touches one key at a time. Keys
are columns of 64-bit words that hold their bytes.

Invariants: a key's value is in one of the two stores, never in both. Threads: one at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from tailrace.lab.gadget.stores.combine import kernels as ck
from tailrace.lab.gadget.stores.combine.combine import Combiner, Plan
from tailrace.lab.gadget.stores.contract import Batch, Settings, Store, Values, fitted, words_of_one
from tailrace.testing.bench.byte_stores import LENGTH_BYTES, ByteLists, BytePanes, ByteRecords, Held


class _TailraceStore(Store):
    batch_note: ClassVar[str] = "combined; then one look-up, one write and one removal, in columns"
    _records_share: ClassVar[float] = 0.5

    def __init__(self, settings: Settings) -> None:
        self._memory_bytes = settings.memory_bytes
        self._key_words = -(-settings.key_bytes // 8)
        self._records = ByteRecords(
            str(settings.folder),
            int(settings.memory_bytes * self._records_share),
            settings.value_bytes,
            self._key_words,
        )
        self._combiner = Combiner()
        self._named = np.zeros((0, self._key_words), np.int64)  # by single calls

    def run(self, batch: Batch) -> Values:
        if batch.key_words.shape[1] != self._key_words:
            batch = replace(batch, key_words=fitted(batch.key_words, self._key_words))
        plan = self._combiner.plan(batch)
        in_records = self._records.find(plan.names, batch.key_words)
        held, kept = self._taken(plan, in_records)
        answers = plan.answers_at(held.sizes, held.starts, held.data)
        writes = plan.writes
        changed = (writes == ck.PUT) | (kept & (writes == ck.MERGE))
        if held is not in_records:
            changed |= (writes == ck.NOTHING) & (in_records.sizes < 0) & (held.sizes >= 0)  # it moves
        numbers = np.flatnonzero(changed)
        if len(numbers):
            self._put(plan, numbers, held)
        gone = in_records.rows[writes == ck.DELETE]
        if len(gone):
            self._records.remove(gone[gone >= 0])
        appended = np.flatnonzero(~kept & (writes == ck.MERGE))
        if len(appended):
            self._append(plan, appended)
        self._records.end()
        return answers

    def _put(self, plan: Plan, numbers: np.ndarray, held: Held) -> None:
        batch, keys = plan.batch, plan.keys[numbers]
        last = keys[:, ck.LAST]
        alone = (keys[:, ck.WRITE] == ck.PUT) & (plan.links[last] < 0)
        if alone.all():  # what one access has written is taken from where it lies
            self._records.put(keys[:, ck.NAME], batch.key_words, keys[:, ck.WRITTEN], batch.starts[last], batch.data)
            return
        room = int(keys[:, ck.WRITTEN].sum()) + int(np.maximum(held.sizes[numbers], 0).sum())
        sizes, data = np.empty(len(numbers), np.int64), np.empty(room, np.uint8)
        ck.whole_values(
            numbers, plan.keys, held.sizes, held.starts, held.data, plan.links, batch.sizes, batch.starts, batch.data,
            sizes, data,
        )  # fmt: skip
        self._records.put(plan.names[numbers], batch.key_words, sizes, np.cumsum(sizes) - sizes, data)

    def _taken(self, plan: Plan, held: Held) -> tuple[Held, np.ndarray]:
        """Values with those taken from the append store; and whose merges go to the records."""
        return held, np.ones(len(plan.keys), bool)

    def _append(self, plan: Plan, numbers: np.ndarray) -> None:
        raise NotImplementedError

    # One access -------------------------------------------------------------------------------------------------------

    def _one(self, operation: int, name: bytes, value: bytes = b"") -> Values:
        key = int(name)
        if key >= len(self._named):
            more = np.zeros((key + 1 + len(self._named), self._key_words), np.int64)
            more[: len(self._named)] = self._named
            self._named = more
        self._named[key] = words_of_one(name, self._key_words)[0]
        return self.run(
            Batch(
                np.array([operation], np.uint8),
                np.array([key], np.int64),
                np.array([len(value)], np.int64),
                np.zeros(1, np.int64),
                np.frombuffer(value, np.uint8),
                (),
                (value,),
                self._named,
            )
        )

    def get(self, key: bytes) -> bytes | None:
        found = self._one(ck.GET, key)
        return None if found.sizes[0] < 0 else found.data.tobytes()

    def put(self, key: bytes, value: bytes) -> None:
        self._one(ck.PUT, key, value)

    def merge(self, key: bytes, value: bytes) -> None:
        self._one(ck.MERGE, key, value)

    def delete(self, key: bytes) -> None:
        self._one(ck.DELETE, key)

    def close(self) -> None:
        self._records.close()


class ReadModifyWriteConnector(_TailraceStore):
    name: ClassVar[str] = "tailrace-rmw"
    _records_share: ClassVar[float] = 1.0

    @property
    def memory(self) -> dict[str, int]:
        return {"records": self._memory_bytes}


class _AppendConnector(_TailraceStore):
    @property
    def memory(self) -> dict[str, int]:
        return {"appended": self._memory_bytes // 2, "records": self._memory_bytes // 2}

    @staticmethod
    def _ends(plan: Plan, held: Held) -> np.ndarray:
        """Which keys may be in the append store and are read, removed or put over."""
        writes = plan.writes
        wanted: np.ndarray = (plan.keys[:, ck.READ] != 0) | (writes == ck.DELETE) | (writes == ck.PUT)
        return wanted & (held.sizes < 0)

    @staticmethod
    def _with(held: Held, numbers: np.ndarray, found: Held) -> Held:
        """``held`` with what was found for the keys ``numbers``."""
        sizes, starts = held.sizes.copy(), held.starts.copy()
        sizes[numbers] = found.sizes
        starts[numbers] = found.starts + len(held.data)
        data = np.concatenate([held.data, found.data]) if len(held.data) else found.data
        return Held(sizes, starts, data, held.rows)


class UnalignedConnector(_AppendConnector):
    name: ClassVar[str] = "tailrace-aur"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._lists = ByteLists(str(settings.folder), settings.memory_bytes // 2, self._key_words)

    def _taken(self, plan: Plan, held: Held) -> tuple[Held, np.ndarray]:
        numbers = np.flatnonzero(self._ends(plan, held))
        if len(numbers):
            held = self._with(held, numbers, self._lists.take(plan.names[numbers], plan.batch.key_words))
        return held, held.sizes >= 0

    def _append(self, plan: Plan, numbers: np.ndarray) -> None:
        keys = plan.batch.key_words
        numbers = numbers[self._lists.order(plan.names[numbers], keys)]
        values = plan.written(numbers, LENGTH_BYTES)
        self._lists.append(plan.names[numbers], keys, values.sizes, values.data)

    def close(self) -> None:
        super().close()
        self._lists.close()


class AlignedConnector(_AppendConnector):
    name: ClassVar[str] = "tailrace-aar"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._panes = BytePanes(str(settings.folder), settings.memory_bytes // 2, self._key_words)
        self._pane_of = settings.panes

    def _of(self, names: np.ndarray) -> np.ndarray:
        return np.zeros(len(names), np.int64) if self._pane_of is None else self._pane_of[names]

    def _taken(self, plan: Plan, held: Held) -> tuple[Held, np.ndarray]:
        panes = self._of(plan.names)
        ending = panes[self._ends(plan, held) & (panes >= self._panes.first_pane)]
        if len(ending):
            numbers = np.flatnonzero((held.sizes < 0) & (panes >= self._panes.first_pane) & (panes <= ending.max()))
            held = self._with(held, numbers, self._opened(int(ending.max()), plan, numbers))
        return held, (held.sizes >= 0) | (panes < self._panes.first_pane)

    def _opened(self, last_pane: int, plan: Plan, numbers: np.ndarray) -> Held:
        """Takes all windows up to this one: what is wanted of them, and what is not goes to the records."""
        wanted = plan.names[numbers]
        names, found = self._panes.take(last_pane + 1)
        at = np.empty(len(wanted), np.int64)
        ck.match(names, wanted, np.full(1 << (2 * len(names) + 1).bit_length(), -1, np.int64), at)
        got = at >= 0
        rest = np.ones(len(names), bool)
        rest[at[got]] = False
        if rest.any():
            self._records.put(names[rest], plan.batch.key_words, found.sizes[rest], found.starts[rest], found.data)
        sizes, starts = np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), np.int64)
        sizes[got], starts[got] = found.sizes[at[got]], found.starts[at[got]]
        return Held(sizes, starts, found.data, found.rows)

    def _append(self, plan: Plan, numbers: np.ndarray) -> None:
        values = plan.written(numbers, LENGTH_BYTES)
        names = plan.names[numbers]
        self._panes.append(names, plan.batch.key_words, self._of(names), values.sizes, values.data)

    def close(self) -> None:
        super().close()
        self._panes.close()
