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
_PANE_MIX = np.int64(-7046029254386353131)


@dataclass(frozen=True)
class Hints:
    """``batch``: the key columns, or where these are not needed a column of hashes. ``times``: (time, count) in order.

    Rows of the batch that have the same time stand together, so that a time is sent once.
    """

    batch: pa.RecordBatch
    times: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.batch)


class HintExtractor:
    def __init__(self, spec: HintSpec, size: SketchSize | None = None) -> None:
        self.spec = spec
        self.sketch = FrequencySketch(size)
        self._at: tuple[int, int] | None = None
        self._sent = np.empty(_SENT_KEPT, np.int64)  # keys, and panes, that were hinted in that epoch and try

    def hints(
        self, batch: Mapping[str, pa.Array], epoch: int, ranges: Sequence[tuple[int, int]], try_: int = 0
    ) -> list[Hints | None]:
        """What is foretold by columns of rows (as ``HintSpec.columns`` names them), for each range of shards."""
        if self._at != (epoch, try_):
            self._at = (epoch, try_)
            self._sent.fill(_NOTHING)
        hashes = hash_columns(self.spec.keys, batch)
        times, known = self._times(batch, len(hashes), epoch)
        cold = ~self.sketch.add(hashes) & known
        chosen = np.flatnonzero(cold)
        if not len(chosen):
            return [None] * len(ranges)
        moments, chosen = self._once(hashes[chosen], times[chosen], chosen)
        fresh = self._fresh(hashes[chosen], moments)
        moments, chosen = moments[fresh], chosen[fresh]
        shards = hashes[chosen] % self.spec.shards
        found: list[Hints | None] = []
        for low, high in ranges:
            own = np.flatnonzero((shards >= low) & (shards < high)) if len(ranges) > 1 else np.arange(len(chosen))
            found.append(self._made(batch, hashes, chosen[own], moments[own]) if len(own) else None)
        return found

    def _times(self, batch: Mapping[str, pa.Array], count: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        time = self.spec.time
        if time is None:
            return np.full(count, epoch, np.int64), np.ones(count, bool)
        array = batch[time.name]
        valid = columns.valid_mask(array)
        times = columns.fixed_words(array, TIMESTAMP, valid)
        return times, np.ones(count, bool) if valid is None else valid

    def _once(self, hashes: np.ndarray, times: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each key once, or once for each pane; the times of hints, ascending, and which rows they are of."""
        pane = self.spec.pane
        panes = np.zeros_like(times) if pane is None else (times - self.spec.offset) // pane
        order = np.lexsort((hashes, panes))
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(hashes[order]) != 0) | (np.diff(panes[order]) != 0)
        order = order[first]
        # One time for all hints of a pane, the latest: they differ by less than rows of one batch are apart.
        _, starts, groups = np.unique(panes[order], return_index=True, return_inverse=True)
        latest = np.full(len(starts), np.iinfo(np.int64).min)
        np.maximum.at(latest, np.searchsorted(panes[order][starts], panes), times)
        return latest[groups], chosen[order]

    def _fresh(self, hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Which of these were not hinted before in this epoch, as far as is remembered."""
        keys = hashes
        if self.spec.pane is not None:
            keys = hashes ^ ((times - self.spec.offset) // self.spec.pane * _PANE_MIX)
        places = (keys >> 17) & (_SENT_KEPT - 1)
        fresh: np.ndarray = (self._sent[places] != keys) | (keys == _NOTHING)
        self._sent[places] = keys
        return fresh

    def _made(self, batch: Mapping[str, pa.Array], hashes: np.ndarray, rows: np.ndarray, times: np.ndarray) -> Hints:
        moments, counts = np.unique(times, return_counts=True)
        if self.spec.whole_keys:
            taken = pa.array(rows)
            made = {key.name: batch[key.name].take(taken) for key in self.spec.keys}
        else:
            made = {HASH_COLUMN: pa.array(hashes[rows])}
        return Hints(pa.RecordBatch.from_pydict(made), tuple(zip(moments.tolist(), counts.tolist(), strict=True)))


def hash_columns(keys: Sequence[Field], batch: Mapping[str, pa.Array]) -> np.ndarray:
    """The hashes of rows by the columns of their keys."""
    layout = record_layout(keys, [], ansi=False)
    builder = RowsBuilder(len(batch[keys[0].name]), layout)
    for key, place in zip(keys, layout.keys, strict=True):
        builder.put(batch[key.name], key.type, place.word, place.bit)
    rows = builder.finish()
    put_hashes(rows, hash_program(layout))
    return np.ascontiguousarray(rows.words[:, HASH])


def told(hints: Hints, keys: Sequence[Field]) -> tuple[np.ndarray, np.ndarray, pa.RecordBatch | None]:
    """What an operator with these keys is told: hashes, times, and the key columns where they were sent."""
    times = np.repeat(
        np.array([time for time, _ in hints.times], np.int64), np.array([count for _, count in hints.times], np.int64)
    )
    if HASH_COLUMN in hints.batch.schema.names:
        return columns.fixed_words(hints.batch.column(HASH_COLUMN), BIGINT, None), times, None
    return hash_columns(keys, {key.name: hints.batch.column(key.name) for key in keys}), times, hints.batch
