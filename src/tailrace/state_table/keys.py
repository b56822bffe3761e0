"""Rows of some keys: which shards they lie in, and which rows of a section are theirs.

A key is found by its hash, and then compared value by value. Threads: a filter may be used by any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tailrace.errors import CheckpointError
from tailrace.operators.ingest.key_hash import hash_program, put_hashes
from tailrace.operators.rows.intervals import numbers_of_keys
from tailrace.operators.spec import OperatorSpec
from tailrace.state.layout import HASH, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows, concat_rows
from tailrace.state.sections.sections import keys_of

Keys: TypeAlias = Mapping[str, Sequence[Any]] | pa.Table | pa.RecordBatch
"""Columns with the names of an operator's keys; a row of them is a key."""


class KeyFilter:
    def __init__(self, spec: OperatorSpec, keys: Keys, names: Sequence[str]) -> None:
        """``names``: of the operator's keys, as its user knows them."""
        self._layout = record_layout(spec.keys, [], ansi=False)
        self._columns = ["__hash", "__pane", *(f"k{i}" for i in range(len(spec.keys)))]
        self._keys = self._rows(spec, keys, names)
        put_hashes(self._keys, hash_program(self._layout))
        self._hashes = np.unique(self._keys.words[:, HASH])
        self.shards = sorted({int(shard) for shard in self._hashes % spec.shards})

    def _rows(self, spec: OperatorSpec, keys: Keys, names: Sequence[str]) -> Rows:
        given = keys.to_pydict() if isinstance(keys, pa.Table | pa.RecordBatch) else dict(keys)
        if not names or set(given) != set(names):
            wanted = ", ".join(names) or "none, since it has one group for all rows"
            raise CheckpointError(
                f"Operator {spec.name} has the key columns {wanted}; got {', '.join(given) or 'none'}. Give all, and "
                "no others."
            )
        columns = []
        for name, key in zip(names, spec.keys, strict=True):
            try:
                columns.append(pa.array(given[name], arrow_type(key.type)))
            except (pa.ArrowException, TypeError, OverflowError) as error:
                raise CheckpointError(f"Key column {name} of operator {spec.name} is {key.type}: {error}") from None
        if len({len(column) for column in columns}) > 1:
            raise CheckpointError(f"The key columns {', '.join(names)} must have as many values each.")
        builder = RowsBuilder(len(columns[0]), self._layout)
        for column, place in zip(columns, self._layout.keys, strict=True):
            builder.put(column, place.type, place.word, place.bit)
        return builder.finish()

    def of(self, section: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a section that are of these keys."""
        hashes = section.column("__hash").to_numpy()
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        alike = section.filter(pa.array(self._hashes[places] == hashes)) if len(self._hashes) else section.slice(0, 0)
        if not len(alike):
            return alike
        rows = keys_of(alike.select(self._columns), self._layout)
        wanted = Rows(self._keys.words.copy(), self._keys.heap)
        numbers, _ = numbers_of_keys(concat_rows([wanted, rows], self._layout), self._layout)
        count = len(self._keys)
        return alike.filter(pa.array(np.isin(numbers[count:], numbers[:count])))
