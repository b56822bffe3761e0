"""Hints out of rows on their way: which keys come, without those that are hot, each once in an epoch.

The hashes are those of the state (``key_hash``), so that a hint reaches the server that owns the key. A key that comes
often needs no hint, since its state stays in memory anyway: a frequency sketch tells. Whole Arrow columns at a time.
What was hinted is remembered in a table of fixed size, where a key may push out another: then it is hinted once more.

Threads: an extractor belongs to one thread. It outlives tasks: what is hot is learned over many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.cache.frequency_sketch import FrequencySketch, SketchSize
from tailrace.operators.key_hash import hash_program, put_hashes
from tailrace.operators.specs.hint import HintSpec
from tailrace.state import columns
from tailrace.state.layout import HASH, record_layout
from tailrace.state.sections import RowsBuilder
from tailrace.types import BIGINT, TIMESTAMP, Field

HASH_COLUMN = "__hash"
_SENT_KEPT = 1 << 15
_NOTHING = -1


@dataclass(frozen=True)
class Hints:
    """``batch``: the key columns, or where these are not needed a column of hashes. ``hashes``: such a column, always.

    ``time``: at which they are expected, the latest of the rows they are of. One for all: rows of one batch are closer
    to each other than any two epochs, which is as exactly as anybody can use it.
    """

    batch: pa.RecordBatch
    time: int
    hashes: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.batch)


class HintExtractor:
    def __init__(self, spec: HintSpec, size: SketchSize | None = None) -> None:
        self.spec = spec
        self.sketch = FrequencySketch(size)
        self._at: tuple[int, int] | None = None
        self._sent = np.empty(_SENT_KEPT, np.int64)  # keys that were hinted in that epoch and try

    def hints(
        self, batch: Mapping[str, pa.Array], epoch: int, ranges: Sequence[tuple[int, int]], try_: int = 0
    ) -> list[Hints | None]:
        """What is foretold by columns of rows (as ``HintSpec.columns`` names them), for each range of shards."""
        if self._at != (epoch, try_):
            self._at = (epoch, try_)
            self._sent.fill(_NOTHING)
        hashes = hash_columns(self.spec.keys, batch)
        chosen = self._chosen(hashes)
        time = self._time(batch, epoch)
        if time is None or not len(chosen):
            return [None] * len(ranges)
        shards = hashes[chosen] % self.spec.shards
        found: list[Hints | None] = []
        for low, high in ranges:
            own = chosen[(shards >= low) & (shards < high)] if len(ranges) > 1 else chosen
            found.append(self._hints(batch, hashes, own, time) if len(own) else None)
        return found

    def _chosen(self, hashes: np.ndarray) -> np.ndarray:
        """A row of each key that is not hot and was not hinted before in this epoch, as far as is remembered."""
        cold = np.flatnonzero(~self.sketch.add(hashes))
        keys, first = np.unique(hashes[cold], return_index=True)
        places = (keys >> 17) & (_SENT_KEPT - 1)
        fresh = (self._sent[places] != keys) | (keys == _NOTHING)
        self._sent[places] = keys
        chosen: np.ndarray = cold[first[fresh]]
        return chosen

    def _time(self, batch: Mapping[str, pa.Array], epoch: int) -> int | None:
        """The latest event time; None where no row has one."""
        if self.spec.time is None:
            return epoch
        array = batch[self.spec.time.name]
        valid = columns.valid_mask(array)
        times = columns.fixed_words(array, TIMESTAMP, None)
        known = times if valid is None else times[valid]
        return int(known.max()) if len(known) else None

    def _hints(self, batch: Mapping[str, pa.Array], hashes: np.ndarray, rows: np.ndarray, time: int) -> Hints:
        short = pa.RecordBatch.from_pydict({HASH_COLUMN: pa.array(hashes[rows])})
        if not self.spec.whole_keys:
            return Hints(short, time, short)
        taken = pa.array(rows)
        whole = pa.RecordBatch.from_pydict({key.name: batch[key.name].take(taken) for key in self.spec.keys})
        return Hints(whole, time, short)


def hash_columns(keys: Sequence[Field], batch: Mapping[str, pa.Array]) -> np.ndarray:
    """The hashes of rows by the columns of their keys."""
    layout = record_layout(keys, [], ansi=False)
    builder = RowsBuilder(len(batch[keys[0].name]), layout)
    for key, place in zip(keys, layout.keys, strict=True):
        builder.put(batch[key.name], key.type, place.word, place.bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    return np.ascontiguousarray(rows.words[:, HASH])


def told(
    batch: pa.RecordBatch, time: int, keys: Sequence[Field]
) -> tuple[np.ndarray, np.ndarray, pa.RecordBatch | None]:
    """What an operator with these keys is told: hashes, times, and the key columns where they were sent."""
    times = np.full(len(batch), time, np.int64)
    if HASH_COLUMN in batch.schema.names:
        return columns.fixed_words(batch.column(HASH_COLUMN), BIGINT, None), times, None
    return hash_columns(keys, {key.name: batch.column(key.name) for key in keys}), times, batch
