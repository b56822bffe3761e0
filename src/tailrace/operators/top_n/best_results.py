"""The output of an operator that keeps rows and gives the best of each group: groups of rows in, their best rows out.

Which rows are the best the same kernel says as where only these are kept: a group gives the same rows wherever its
windows come from.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.operators.rows.keyed import Keyed
from tailrace.operators.top_n.best_rows import best_of, order_of
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.state.layout import Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.columns import decode


class BestResults:
    def __init__(self, spec: TopNSpec) -> None:
        self._spec = spec
        self._schema = output_schema(spec)
        self._layout = record_layout((), [(Merge.ROW, row.type) for row in spec.rows], ansi=False)
        self._order = order_of(spec.rows, spec.order, spec.time_column, self._layout)

    def batch(self, groups: Groups, window: pa.Array | None) -> pa.RecordBatch:
        """The best rows of each group, the best first."""
        assert window is not None, "without windows only the best rows are kept"
        builder = RowsBuilder(int(groups.offsets[-1]), self._layout)
        for row, place in zip(self._spec.rows, self._layout.accumulators, strict=True):
            builder.put(groups.columns[row.name], row.type, place.word, place.bit)
        rows = builder.finish()
        best, starts = best_of(rows, Keyed(groups.numbers, groups.offsets[:-1]), self._spec.n, self._order)
        sizes = np.diff(starts)
        whose, chosen = pa.array(np.repeat(np.arange(len(groups)), sizes)), pa.array(best)
        arrays = [groups.columns[key.name].take(chosen) for key in self._spec.keys]
        arrays.insert(self._spec.window_position, window.take(whose))
        arrays += [groups.columns[name].take(chosen) for name in self._spec.shown]
        arrays.append(pa.array((np.arange(1, len(best) + 1) - np.repeat(starts[:-1], sizes)).astype(np.int32)))
        if self._spec.latest is not None:
            assert self._spec.time_column is not None
            place = self._layout.accumulators[[row.name for row in self._spec.rows].index(self._spec.time_column.name)]
            # All rows of a group have a time: one without would have been left out.
            latest = np.maximum.reduceat(rows.words[:, place.word], groups.offsets[:-1])
            arrays.append(decode(np.repeat(latest, sizes), None, rows.heap, place.type))
        arrays = [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
