"""What a micro-batch comes to: at most one read and one write of each key, and the answers of all its gets.

For stores whose calls for many keys know no order among them. What may be combined is what cannot be distinguished from
doing the accesses one by one: of a key, only the first gets see what the store holds, so it is read once; a get after a
put, merge or delete of the same batch is answered from the batch; of the writes, what they come to together is written:
a put with the merges behind it is one put, merges alone are one merge of their bytes in order, and what a delete ends
is a delete. A key that is made and removed in one batch is still deleted in the store, which may have held it before.

`Plan` is that, for one batch. Its arrays are reused for the next one of the same `Combiner`. Threads: one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tailrace.lab.gadget.stores.combine import kernels as ck
from tailrace.lab.gadget.stores.contract import Batch, Values


@dataclass(frozen=True)
class Plan:
    batch: Batch
    keys: np.ndarray
    """int64[keys, 5], in the order of first appearance: state key, the last access whose bytes are written or -1, how
    many bytes are written, what is written (NOTHING, PUT, MERGE or DELETE), how many gets need what the store holds"""
    links: np.ndarray
    """int32, by access: the access whose bytes come before those of a merge, or -1"""
    asked: np.ndarray
    """int32[gets, 4]: number of the key, last access whose bytes are seen or -1, how many bytes the batch has for it,
    whether those come after what the store holds"""
    bytes_found: int
    """By all gets together, in the batch."""

    @property
    def names(self) -> np.ndarray:
        """int64: state keys"""
        return self.keys[:, ck.NAME]

    @property
    def writes(self) -> np.ndarray:
        return self.keys[:, ck.WRITE]

    def to_read(self, *, and_merged: bool = False) -> np.ndarray:
        """Numbers of the keys that must be read; ``and_merged`` for stores that append by rewriting."""
        wanted = self.keys[:, ck.READ] != 0
        if and_merged:
            wanted |= self.writes == ck.MERGE
        return np.flatnonzero(wanted)

    def written(self, numbers: np.ndarray, room: int = 0) -> Values:
        """What is written to these keys, without what the store holds already; with ``room`` before each value."""
        sizes = self.keys[numbers, ck.WRITTEN]
        data = np.empty(int(sizes.sum()) + room * len(numbers), np.uint8)
        batch = self.batch
        ck.write_values(numbers, self.keys, self.links, batch.sizes, batch.starts, batch.data, room, data)
        return Values(sizes, data)

    def answers(self, read: np.ndarray, held: Values) -> Values:
        """Of all gets; ``held`` is what the store held for the keys ``read``."""
        lengths = np.maximum(held.sizes, 0)
        sizes, starts = np.full(len(self.keys), -1, np.int64), np.zeros(len(self.keys), np.int64)
        sizes[read] = held.sizes
        starts[read] = np.cumsum(lengths) - lengths
        return self.answers_at(sizes, starts, held.data)

    def answers_at(self, sizes: np.ndarray, starts: np.ndarray, held: np.ndarray) -> Values:
        """The same, where the store's values lie at ``starts`` in ``held``, by key; a size of -1 is none."""
        found = np.empty(len(self.asked), np.int64)
        data = np.empty(self.bytes_found + int((self.keys[:, ck.READ] * np.maximum(sizes, 0)).sum()), np.uint8)
        batch = self.batch
        ck.answer(
            self.asked, sizes, starts, held, self.links, batch.sizes, batch.starts, batch.data, found, data
        )  # fmt: skip
        return Values(found, data)


class Combiner:
    """Makes plans."""

    def __init__(self) -> None:
        self._accesses = 0

    def plan(self, batch: Batch) -> Plan:
        count = len(batch)
        if count > self._accesses:
            self._accesses = count
            self._slots = np.full(1 << (count + count // 4).bit_length(), -1, np.int32)
            self._keys, self._asked = np.empty((count, 5), np.int64), np.empty((count, 4), np.int32)
            self._places, self._links = np.empty(count, np.int32), np.empty(count, np.int32)
        keys, gets, found = ck.combine(
            batch.operations, batch.keys, batch.key_words, batch.sizes, self._slots, self._keys, self._places,
            self._links, self._asked,
        )  # fmt: skip
        return Plan(batch, self._keys[:keys], self._links[:count], self._asked[:gets], int(found))


def columns_of(found: list[bytes | None]) -> Values:
    """What a library has given as a list."""
    sizes = np.fromiter((-1 if one is None else len(one) for one in found), np.int64, len(found))
    return Values(sizes, np.frombuffer(b"".join(one for one in found if one), np.uint8))


def list_of(values: Values) -> list[bytes]:
    """For a library that wants one object a value; none may be missing."""
    data = values.data.tobytes()
    ends = np.cumsum(values.sizes).tolist()
    return [data[end - size : end] for size, end in zip(values.sizes.tolist(), ends)]
