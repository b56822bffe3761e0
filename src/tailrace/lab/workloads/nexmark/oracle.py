"""The right answers: each query of ``answers`` over the whole input, by DuckDB. Knows neither Spark nor Tailrace.

An answer is what an engine must have said once it has seen everything; ``compare.closed`` leaves of it the windows that
a watermark has closed. Every call opens a database of its own in memory, so calls may run side by side.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.answers import ANSWERS
from tailrace.lab.workloads.nexmark.events.files import read_manifest
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA, SCHEMAS, Kind, wide_name
from tailrace.lab.workloads.nexmark.params import Params


def answer(query: str, source: pa.Table | ds.Dataset | Path, params: Params | None = None) -> pa.Table:
    """The rows of a query's answer, in no order, with the columns of ``ANSWERS[query]``.

    ``source``: wide events as a table or a dataset, or a folder that ``files.write_files`` made.
    """
    if query not in ANSWERS:
        raise TailraceError(f"NEXMark: no answer is known for {query!r}; there are {', '.join(ANSWERS)}")
    wanted = ANSWERS[query]
    with duckdb.connect() as database:
        database.register("events", _opened(source))
        for kind in Kind:
            database.execute(_view(kind, database.table("events").columns))
        rows = database.sql(wanted.sql.format(p=params or Params())).to_arrow_table()
    return rows.select(wanted.columns.names).cast(wanted.columns)


def _opened(source: pa.Table | ds.Dataset | Path) -> pa.Table | ds.Dataset:
    if not isinstance(source, Path):
        return source
    manifest = read_manifest(source)
    schema = pa.schema([EVENT_SCHEMA.field(name) for name in manifest.columns])
    paths = [str(source / file.name) for file in manifest.files]
    return ds.dataset(paths, schema=schema, format=manifest.format.value)


def _view(kind: Kind, present: list[str]) -> str:
    """A kind's own columns, as many as the events have; times as integers."""
    columns = ["number", 'epoch_ms("dateTime") AS t']
    for field in SCHEMAS[kind]:
        wide = wide_name(kind, field.name)
        if field.name != "dateTime" and wide in present:
            columns.append(f"{f'epoch_ms({wide})' if pa.types.is_timestamp(field.type) else wide} AS {field.name}")
    name = kind.name.lower()
    return f"CREATE TEMP VIEW {name} AS SELECT {', '.join(columns)} FROM events WHERE event_type = {int(kind)}"
