"""What an operator's state became between two epochs: rows that were inserted, updated and removed.

Both epochs are read shard by shard, a large shard in pieces that are cut alike at both, and compared. A row is updated
where its identity (see ``OperatorState.identity``) is that of a row of before and something else of it differs; rows
that have no identity are inserted and removed, as often as they are there more or less.

Threads: a feed may be used by any; each reading by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from tailrace.operators.spec import OperatorSpec
from tailrace.state_table.keys import KeyFilter, Keys
from tailrace.state_table.operator_state import OperatorState
from tailrace.state_table.row_codes import codes_of, occurrences

CHANGE = "_change"
REMOVED, UPDATED, INSERTED = range(3)
_WORDS = ("removed", "updated", "inserted")


class StateChanges:
    """``before``, ``after``: the same operator at two epochs.

    A row that was removed is given as it was, any other as it is. The last column, ``_change``, says what happened.
    """

    def __init__(self, before: OperatorState, after: OperatorState) -> None:
        self._before = before
        self._after = after
        self._identity = len(after.identity)
        name = CHANGE
        while name in after.schema.names:
            name = f"_{name}"
        self.schema: pa.Schema = after.schema.append(pa.field(name, pa.string()))

    @property
    def shards(self) -> int:
        """How many there are."""
        return self._after.shards

    @property
    def bytes(self) -> int:
        return self._before.bytes + self._after.bytes

    @property
    def spec(self) -> OperatorSpec:
        return self._after.spec

    @property
    def keys(self) -> tuple[str, ...]:
        return self._after.keys

    def batches(self, keys: Keys | None = None, shards: Collection[int] | None = None) -> Iterator[pa.RecordBatch]:
        """All changes, or those of some keys, of some shards."""
        before, after = self._before, self._after
        wanted = None if keys is None else KeyFilter(after.spec, keys, after.keys)
        chosen = range(after.shards) if shards is None else sorted(set(shards))
        if wanted is not None:
            chosen = [shard for shard in wanted.shards if shard in set(chosen)]
        chosen = [shard for shard in chosen if before.source_of(shard) != after.source_of(shard)]
        was, now = before.opened(chosen), after.opened(chosen)
        for shard in chosen:
            pieces = before.sections_of(was, shard, now), after.sections_of(now, shard, was)
            for pair in zip(*pieces, strict=False):  # a shard that is damaged at one of them has no piece
                shown = [
                    operator.shown(shard, [wanted.of(batch) for batch in batches] if wanted else batches, horizon)
                    for operator, (_, batches, horizon) in zip((before, after), pair, strict=True)
                ]
                changed = self._compared(*(pa.Table.from_batches(rows, after.schema) for rows in shown))
                if len(changed):
                    yield changed

    def table(self, keys: Keys | None = None, shards: Collection[int] | None = None) -> pa.Table:
        """All of them at once, in memory."""
        return pa.Table.from_batches(self.batches(keys, shards), self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A new reading, for whoever takes Arrow streams: DuckDB, Polars, pandas."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches()).__arrow_c_stream__(requested_schema)

    def _compared(self, old: pa.Table, new: pa.Table) -> pa.RecordBatch:
        rows = pa.concat_tables([old, new]).combine_chunks()
        is_old = np.arange(len(rows)) < len(old)
        whole = codes_of(rows.columns, len(rows))
        if self._identity:
            identity = codes_of(rows.columns[: self._identity], len(rows))
        else:  # of equal rows, the first of before is the first of now
            times = np.concatenate([occurrences(whole[is_old]), occurrences(whole[~is_old])])
            identity = codes_of([pa.array(whole), pa.array(times)], len(rows))
        order = np.lexsort((~is_old, identity))  # an old row right before the new one of its identity
        same = np.zeros(len(rows), bool)
        same[:-1] = identity[order][1:] == identity[order][:-1]
        paired = np.zeros(len(rows), bool)
        paired[order[:-1][same[:-1]]] = paired[order[1:][same[:-1]]] = True
        equal = np.zeros(len(rows), bool)
        equal[order[1:][same[:-1]]] = whole[order[1:][same[:-1]]] == whole[order[:-1][same[:-1]]]
        change = np.where(is_old, REMOVED, np.where(paired, UPDATED, INSERTED))
        chosen = np.flatnonzero(np.where(is_old, ~paired, ~equal))
        words = pa.array(_WORDS).take(pa.array(change[chosen]))
        columns = [column.combine_chunks() for column in rows.take(pa.array(chosen)).columns]
        return pa.RecordBatch.from_arrays([*map(_one, columns), words], schema=self.schema)


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
