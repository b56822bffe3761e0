"""The output of an operator that keeps rows: groups of rows in, one row for each group out.

Mergeable aggregates beside holistic ones are computed from the rows too, by making and merging partials as an
operator of records would, so that both kinds of operator answer alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.accumulators import Accumulator, Output
from tailrace.operators.aggregate.finish import finish
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec, needs_rows
from tailrace.operators.output import output_schema
from tailrace.operators.rows.groups import Groups
from tailrace.operators.spec import VALUES_MAX
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DataType, Field

_GROUP = Field("__group", BIGINT)


class Results(Protocol):
    """Makes the output rows of groups."""

    def batch(self, groups: Groups, window: pa.Array | None) -> pa.RecordBatch:
        """``window``: that of each group, as the output has it; None where there are no windows."""


class GroupResults:
    """Makes one output row of each group: its aggregates."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._schema = output_schema(spec)
        self._types: dict[str, DataType] = {field.name: field.type for field in (*spec.keys, *spec.rows)}
        self._merged = [_of_groups(part) for part in _parts(spec)]

    def batch(self, groups: Groups, window: pa.Array | None) -> pa.RecordBatch:
        """One row for each group."""
        spec = self._spec
        arrays = [groups.firsts(key.name) for key in spec.keys]
        if window is not None:
            arrays.insert(spec.window_position, window)
        merged = {name: array for part in self._merged for name, array in self._merge(part, groups).items()}
        for out in spec.outputs:
            arrays.append(self._of_rows(groups, out) if needs_rows(out) else merged[out.name])
        arrays = [array.cast(field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _merge(self, spec: AggregateSpec, groups: Groups) -> dict[str, pa.Array]:
        """The incremental outputs of one part, by name."""
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


def _of_groups(spec: AggregateSpec) -> AggregateSpec:
    """The aggregation of rows that have the number of their group for a key."""
    return replace(
        spec,
        keys=(_GROUP,),
        rows=(),
        window=None,
        store=None,
        emit_changed=True,
        watermarked=False,
        ttl=None,
        shards=1,
    )


def _parts(spec: AggregateSpec) -> Iterator[AggregateSpec]:
    """The incremental outputs, as many at a time as one record has room for."""
    outputs: list[Output] = []
    accumulators: list[Accumulator] = []
    for out in spec.outputs:
        if needs_rows(out):
            continue
        own = [spec.accumulators[place] for place in out.accumulators]
        added = [one for one in own if one not in accumulators]
        if outputs and 1 + sum(one.valid_bits for one in (*accumulators, *added)) > VALUES_MAX:
            yield replace(spec, outputs=tuple(outputs), accumulators=tuple(accumulators))
            outputs, accumulators, added = [], [], own
        accumulators += added
        outputs.append(replace(out, accumulators=tuple(accumulators.index(one) for one in own)))
    if outputs:
        yield replace(spec, outputs=tuple(outputs), accumulators=tuple(accumulators))
