"""The source, the operator and the right answers: keys whose values are summed up.

The source is a fixed list of rows; an epoch is a stretch of it. So the state after an epoch follows from where its
stretch ends, and what it emits from the stretch: that is the oracle. Values are large and odd enough that rows which
are lost, doubled or of another epoch change some sum.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.ids import MIN_MICROS

ROWS_MAX = 64
KEYS = 6
SHARDS = 4
OPERATOR = "sums"
State = dict[int, int]
SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("value", pa.int64())])

SOURCE: list[tuple[int, int]] = [
    (at * 7919 % 1009 % KEYS, (at * 2654435761 + 12345) % (1 << 40)) for at in range(ROWS_MAX)
]


def _states() -> list[State]:
    states: list[State] = [{}]
    for key, value in SOURCE:
        states.append({**states[-1], key: states[-1].get(key, 0) + value})
    return states


STATES = _states()
"""By how many rows of the source have been applied."""


def shard_of(key: int) -> int:
    return key % SHARDS


def emitted(start: int, end: int, way: int) -> dict[int, tuple[int, int]]:
    """What the epoch of this stretch gives its sink: the new sum of every key that it has touched, and its ``way``."""
    return {key: (STATES[end][key], way) for key, _ in SOURCE[start:end]}


@dataclass(frozen=True)
class Rows:
    """A frame: what a task stages on one server."""

    rows: tuple[tuple[int, int], ...]

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return 16 * len(self.rows)

    def checksum(self) -> int:
        return sum(key * 31 + value for key, value in self.rows)

    def to_batch(self) -> pa.RecordBatch:
        raise NotImplementedError("nothing is spilled here")


def batch_of(records: Mapping[int, int]) -> pa.RecordBatch:
    columns = [array("q", records.keys()), array("q", records.values())]
    made = [pa.Array.from_buffers(pa.int64(), len(records), [None, pa.py_buffer(column)]) for column in columns]
    return pa.RecordBatch.from_arrays(made, schema=SCHEMA)


def records_of(batch: pa.RecordBatch) -> State:
    return dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def fold(operator: str, batches: Sequence[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
    """Newest wins."""
    found: State = {}
    for batch in batches:
        found |= records_of(batch)
    return batch_of(found)


class Sums:
    """``operators.operator.Operator``, the smallest that can tell right from wrong."""

    def __init__(self) -> None:
        self.state: dict[int, State] = {}
        self._before: dict[int, State] = {}  # epoch -> touched keys with their sums before it; -1 where there was none
        self._way = 0

    def set_times(self, now: int, forget_before: int = MIN_MICROS) -> None:
        self._way = now

    def apply(self, epoch: int, frames: Sequence[Rows]) -> None:
        before = self._before[epoch] = {}
        for frame in frames:
            for key, value in frame.rows:
                state = self.state[shard_of(key)]
                before.setdefault(key, state.get(key, -1))
                state[key] = state.get(key, 0) + value

    def advance(self, epoch: int, late_before: int, watermark: int) -> list[pa.RecordBatch]:
        touched = self._before.get(epoch, {})
        return [batch_of({key: self.state[shard_of(key)][key] for key in touched})] if touched else []

    @property
    def way(self) -> int:
        return self._way

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        found: dict[int, State] = {}
        for key in self._before.get(epoch, {}):
            found.setdefault(shard_of(key), {})[key] = self.state[shard_of(key)][key]
        return {shard: batch_of(records) for shard, records in found.items()}

    def undo(self, epoch: int) -> None:
        for key, value in self._before.pop(epoch).items():
            state = self.state[shard_of(key)]
            if value < 0:
                del state[key]
            else:
                state[key] = value

    def forget(self, epoch: int) -> None:
        for each in [each for each in self._before if each <= epoch]:
            del self._before[each]

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        state = self.state[shard] = {}
        for batch in batches:
            state |= records_of(batch)

    def drop_shard(self, shard: int) -> None:
        del self.state[shard]
        for before in self._before.values():
            for key in [key for key in before if shard_of(key) == shard]:
                del before[key]

    def updated(self, epoch: int) -> int:
        return len(self._before.get(epoch, {}))

    def close(self) -> None:
        self.state = {}

    horizon = 0
    rows = 0
    nbytes = 0
    disk_bytes = 0

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self.state)
