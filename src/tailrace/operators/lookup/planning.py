"""A join with a lookup table to the operator that a state server runs for it."""

from __future__ import annotations

import json

from tailrace.api.relations import Lookup, OutputMode
from tailrace.errors import AnalysisError
from tailrace.operators.lookup.spec import LookupSpec, TableSpec
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.spec import VALUES_MAX


def plan_lookup(stream: Lookup, output_mode: OutputMode, shards: int, name: str) -> LookupSpec:
    table, time = stream.table, stream.watermark
    spec = LookupSpec(
        name=name,
        keys=stream.keys,
        rows=stream.columns,
        values=stream.values,
        fields=tuple(field.name for field in stream.values),
        table=TableSpec(
            backend=table.backend,
            shown=table.shown,
            retry=table.retry,
            options=json.dumps(dict(table.options), sort_keys=True),
            code="" if table.connect is None else packed(table.connect),
            max_age=table.max_age,
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
