"""The output of an operator that keeps rows: groups of rows in, one row for each group out.

Mergeable aggregates beside holistic ones are computed from the rows too, by making and merging partials as an
operator of records would, so that both kinds of operator answer alike.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.spec import AggregateSpec, needs_rows
from tailrace.operators.ingest.partials import PartialIngest
from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.operators.top_n.best_results import BestResults
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DataType, Field

_GROUP = Field("__group", BIGINT)


class GroupResults:
    """Makes the output rows of groups."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._best = None if spec.best is None else BestResults(spec)
        self._schema = output_schema(spec)
        self._types: dict[str, DataType] = {field.name: field.type for field in (*spec.keys, *spec.rows)}
        merged = tuple(out for out in spec.outputs if not needs_rows(out))
        self._merged = replace(
            spec,
            keys=(_GROUP,),
            rows=(),
            outputs=merged,
            window=None,
            store=None,
            emit_changed=True,
            watermarked=False,
            ttl=None,
            best=None,
            shards=1,
        )

    def batch(self, groups: Groups, window: pa.Array | None) -> pa.RecordBatch:
        """One row for each group, or its best. ``window``: the struct of its bounds, for each group."""
        spec = self._spec
        if self._best is not None:
            assert window is not None
            return self._best.batch(groups, window)
        arrays = [groups.firsts(key.name) for key in spec.keys]
        if window is not None:
            arrays.insert(spec.window_position, window)
        merged = self._merge(groups)
        for out in spec.outputs:
            arrays.append(self._of_rows(groups, out) if needs_rows(out) else merged[out.name])
        arrays = [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _merge(self, groups: Groups) -> dict[str, pa.Array]:
        """The incremental outputs by name."""
        spec = self._merged
        if not spec.outputs:
            return {}
        names = {column for accumulator in spec.accumulators for column in accumulator.columns}
        if spec.time_column is not None:
            names.add(spec.time_column.name)
        columns = {name: groups.columns[name] for name in sorted(names)}
        batch = pa.RecordBatch.from_pydict({**columns, _GROUP.name: pa.array(groups.numbers)})
        ingest = PartialIngest(spec, MIN_MICROS, True, self._types)
        frame = ingest.frame([batch])
        # Groups come in order, so that records, in order of first change, do too.
        made = finish(Rows(frame.rows, frame.heap), spec, spec.layout())
        numbers = np.asarray(made.column(0))
        assert len(numbers) == len(groups) and bool((np.diff(numbers) == 1).all()), "a group without a record"
        return {name: made.column(name) for name in made.schema.names[1:]}

    def _of_rows(self, groups: Groups, out: Output) -> pa.Array:
        assert out.function is not None, "a window function makes its rows itself"
        of_rows = DESCRIPTORS[out.function].of_rows
        assert of_rows is not None
        return of_rows(groups, out, "" if self._spec.time_column is None else self._spec.time_column.name)
