"""The source, the operator and the right answers: keys of panes whose values are summed up.

The source is a fixed list of rows; an epoch is a stretch of it. So the state after an epoch follows from where its
stretch ends, and what it emits from the stretch: that is the oracle. Values are large and odd enough that rows which
are lost, doubled or of another epoch change some sum.

A few neighbours have one pane, every other row a much later one, and a pane is gone when no later row can have it:
so some objects soon have nothing left in them, and others are compacted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.ids import MIN_MICROS

ROWS_MAX = 64
KEYS = 2
"""Of a pane."""
SPAN = 4
SHARDS = 4
OPERATOR = "sums"
State = dict[int, int]
SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("value", pa.int64()), pa.field("__pane", pa.int64())])


def _key(at: int) -> int:
    return (at // SPAN + 4 * (at % 2)) * KEYS + at * 7919 % 1009 % KEYS


SOURCE: list[tuple[int, int]] = [(_key(at), (at * 2654435761 + 12345) % (1 << 40)) for at in range(ROWS_MAX)]


def pane_of(key: int) -> int:
    return key // KEYS


def horizon_after(end: int) -> int:
    """The first pane that a row from ``end`` on may have."""
    return end // SPAN


def left_by(state: State, horizon: int) -> State:
    return {key: value for key, value in state.items() if pane_of(key) >= horizon}


def _sums() -> list[State]:
    sums: list[State] = [{}]
    for key, value in SOURCE:
        sums.append({**sums[-1], key: sums[-1].get(key, 0) + value})
    return sums


_SUMS = _sums()
STATES = [left_by(sums, horizon_after(end)) for end, sums in enumerate(_SUMS)]
"""By how many rows of the source have been applied."""


def shard_of(key: int) -> int:
    return key % SHARDS


def emitted(start: int, end: int, way: int) -> dict[int, tuple[int, int]]:
    """What the epoch of this stretch gives its sink: the new sum of every key that it has touched, and its ``way``."""
    return {key: (_SUMS[end][key], way) for key, _ in SOURCE[start:end]}


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
    columns = [array("q", records.keys()), array("q", records.values()), array("q", map(pane_of, records))]
    made = [pa.Array.from_buffers(pa.int64(), len(records), [None, pa.py_buffer(column)]) for column in columns]
    return pa.RecordBatch.from_arrays(made, schema=SCHEMA)


def records_of(batch: pa.RecordBatch) -> State:
    return dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def compact(operator: str, batches: Sequence[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
    """Newest wins."""
    found: State = {}
    for batch in batches:
        found |= records_of(batch)
    return batch_of(left_by(found, horizon))


class Sums:
    """``operators.operator.Operator``, the smallest that can tell right from wrong."""

    def __init__(self) -> None:
        self.state: dict[int, State] = {}
        self.horizon = 0
        self._before: dict[int, State] = {}  # epoch -> touched keys with their sums before it; -1 where there was none
        self._gone: dict[int, tuple[int, State]] = {}  # epoch -> the horizon before it, and what it has taken
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
        emitted = {key: self.state[shard_of(key)][key] for key in touched}
        closed = [key for state in self.state.values() for key in state if pane_of(key) < watermark]
        self._gone[epoch] = self.horizon, {key: self.state[shard_of(key)].pop(key) for key in closed}
        self.horizon = max(self.horizon, watermark)
        return [batch_of(emitted)] if emitted else []

    @property
    def way(self) -> int:
        return self._way

    def delta(self, epoch: int) -> dict[int, pa.RecordBatch]:
        found: dict[int, State] = {}
        for key in self._before.get(epoch, {}):
            if key in self.state[shard_of(key)]:
                found.setdefault(shard_of(key), {})[key] = self.state[shard_of(key)][key]
        return {shard: batch_of(records) for shard, records in found.items()}

    in_memory = True

    def whole(self, shards: Sequence[int]) -> dict[int, pa.RecordBatch]:
        return {shard: batch_of(self.state[shard]) for shard in shards if self.state[shard]}

    def undo(self, epoch: int) -> None:
        self.horizon, gone = self._gone.pop(epoch, (self.horizon, {}))
        for key, value in gone.items():
            self.state[shard_of(key)][key] = value
        for key, value in self._before.pop(epoch).items():
            state = self.state[shard_of(key)]
            if value < 0:
                del state[key]
            else:
                state[key] = value

    def forget(self, epoch: int) -> None:
        for kept in (self._before, self._gone):
            for each in [each for each in kept if each <= epoch]:
                del kept[each]

    def restore(self, shard: int, batches: Iterable[pa.RecordBatch], horizon: int) -> None:
        state = self.state[shard] = {}
        for batch in batches:
            state |= left_by(records_of(batch), horizon)
        self.horizon = max(self.horizon, horizon)

    def drop_shard(self, shard: int) -> None:
        del self.state[shard]
        for kept in (*self._before.values(), *(gone for _, gone in self._gone.values())):
            for key in [key for key in kept if shard_of(key) == shard]:
                del kept[key]

    def updated(self, epoch: int) -> int:
        return len(self._before.get(epoch, {}))

    def close(self) -> None:
        self.state = {}

    @property
    def rows(self) -> int:
        return sum(map(len, self.state.values()))

    nbytes = 0
    disk_bytes = 0

    @property
    def shards(self) -> frozenset[int]:
        return frozenset(self.state)
