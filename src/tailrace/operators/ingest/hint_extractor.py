"""Hints out of rows on their way: which keys come, without those that are hot, each once in an epoch.

The hashes are those of the state (``key_hash``), so that a hint reaches the server that owns the key. Where state lies
in panes of event time, a key is hinted for each pane that it has rows in. A key that comes often needs no hint, since
its state stays in memory anyway: a frequency sketch says. Whole Arrow columns at a time. What was hinted is remembered
in a table of fixed size, where a key may push out another: then it is hinted once more.

Threads: an extractor belongs to one thread. It outlives tasks: what is hot is learned over many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.base import HintedKeys
from tailrace.operators.ingest.hint_spec import HintSpec
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.state.cache.frequency_sketch import FrequencySketch, SketchSize
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows import columns
from tailrace.state.rows.builder import RowsBuilder
from tailrace.types import BIGINT, TIMESTAMP, Field

HASH_COLUMN = "__hash"
PANE_COLUMN = "__pane"
_SENT_KEPT = 1 << 15
_NOTHING = -1
_MIX = np.int64(-0x61C8864680B583EB)
"""2**64 over the golden ratio: makes ids of panes and hashes that differ in all bits."""


@dataclass(frozen=True)
class Hints:
    """``batch``: the key columns, or where these are not needed a column of hashes, with panes a second one of these.
    ``hashes``: such columns, always.

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
        """The hints that columns of rows give (as ``HintSpec.columns`` names them), for each range of shards."""
        if self._at != (epoch, try_):
            self._at = (epoch, try_)
            self._sent.fill(_NOTHING)
        hashes = hash_columns(self.spec.keys, batch)
        times, known = self._times(batch)
        if known is not None and not known.any():
            return [None] * len(ranges)
        time = epoch if times is None else int((times if known is None else times[known]).max(initial=MIN_MICROS))
        ids, panes = hashes, None
        if self.spec.panes is not None:
            assert times is not None, "panes without an event time"
            panes = self.spec.panes.of(times)
            ids = hashes ^ panes * _MIX
        chosen = self._chosen(ids, known if panes is not None else None)
        if not len(chosen):
            return [None] * len(ranges)
        shards = hashes[chosen] % self.spec.shards
        found: list[Hints | None] = []
        for low, high in ranges:
            own = chosen[(shards >= low) & (shards < high)] if len(ranges) > 1 else chosen
            found.append(self._hints(batch, hashes, panes, own, time) if len(own) else None)
        return found

    def _chosen(self, ids: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        """A row of each id that is not hot and was not hinted before in this epoch, as far as is remembered.

        ``known``: rows that have one; None: all have.
        """
        hot = self.sketch.add(ids)
        spilled = np.flatnonzero(~hot if known is None else known & ~hot)
        keys, first = np.unique(ids[spilled], return_index=True)
        places = (keys >> 17) & (_SENT_KEPT - 1)
        fresh = (self._sent[places] != keys) | (keys == _NOTHING)
        self._sent[places] = keys
        chosen: np.ndarray = spilled[first[fresh]]
        return chosen

    def _times(self, batch: Mapping[str, pa.Array]) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Event times, and which rows have one: None, where all do. No times where there is no column of them."""
        if self.spec.time is None:
            return None, None
        array = batch[self.spec.time.name]
        return columns.fixed_words(array, TIMESTAMP, None), columns.valid_mask(array)

    def _hints(
        self,
        batch: Mapping[str, pa.Array],
        hashes: np.ndarray,
        panes: np.ndarray | None,
        rows: np.ndarray,
        time: int,
    ) -> Hints:
        columns = {HASH_COLUMN: pa.array(hashes[rows])}
        if panes is not None:
            columns[PANE_COLUMN] = pa.array(panes[rows])
        short = pa.RecordBatch.from_pydict(columns)
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


def hinted_keys(batch: pa.RecordBatch, time: int, keys: Sequence[Field]) -> HintedKeys:
    """The keys that a hint names, for an operator with these key columns."""
    times = np.full(len(batch), time, np.int64)
    names = batch.schema.names
    if HASH_COLUMN not in names:
        for key in keys:
            columns.check_type(batch.column(key.name), key.type)
        return HintedKeys(hash_columns(keys, {key.name: batch.column(key.name) for key in keys}), times, keys=batch)
    panes = columns.fixed_words(batch.column(PANE_COLUMN), BIGINT, None) if PANE_COLUMN in names else None
    return HintedKeys(columns.fixed_words(batch.column(HASH_COLUMN), BIGINT, None), times, panes)
