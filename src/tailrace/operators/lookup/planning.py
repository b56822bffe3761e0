"""A join with a lookup table to the operator that a state server runs for it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from tailrace.api.relations import Lookup
from tailrace.errors import AnalysisError
from tailrace.operators.lookup.spec import Backend, LookupSpec, TableSpec
from tailrace.operators.spec import VALUES_MAX
from tailrace.plan.user_functions import packed


def plan_lookup(stream: Lookup, shards: int, name: str) -> LookupSpec:
    table, time = stream.table, stream.watermark
    spec = LookupSpec(
        name=name,
        keys=stream.keys,
        rows=stream.columns,
        values=stream.values,
        fields=tuple(field.name for field in stream.values),
        table=TableSpec(
            backend=Backend(table.backend),
            shown=table.shown,
            retry=table.retry,
            options=json.dumps(dict(table.options), sort_keys=True),
            code="" if table.connect is None else packed(table.connect),
        ),
        outer=stream.outer,
        time_column=None if time is None else time.column,
        shards=shards,
    )
    for what, width in (("a row", len(spec.rows)), ("a row of the table", len(spec.values) + 1)):
        if len(spec.keys) + width > VALUES_MAX:
            raise AnalysisError(
                f"join: {what} has {len(spec.keys) + width} columns, and at most {VALUES_MAX} can be passed on: select "
                f"those that you need"
            )
    return spec


def narrowed_lookup(spec: LookupSpec, reads: Collection[str]) -> LookupSpec:
    """The same for a next operator that reads only these columns: nothing else is read, cached and handed over."""
    time = () if spec.time_column is None else (spec.time_column.name,)
    rows = tuple(row for row in spec.rows if row.name in reads or row.name in time)
    return replace(spec, rows=rows, values=tuple(value for value in spec.values if value.name in reads))
