"""A query over 65-byte records as a workload of the lab: two versions of it, and the right answer by DuckDB.

Windows are said once, when the watermark has reached their end. Tailrace closes them by the records of the epoch too,
Spark by those of the epochs before: it says the same rows, one epoch later. Records come in order, so none is late by
either rule, and the whole answers are equal. Plain data and pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace.lab.registry import OURS, Batch, Files, Parameter, Settings, Value, Workload
from tailrace.lab.workloads.traffic.records import BATCH_S, PARAMETERS, SCHEMA, Layout, Source, batches, named

FEED = "records"
TIME = "ts"
WINDOW = "window"
CLOSES_BY = "until"
"""The column with the second in which a row's window ends."""

Build = Callable[[DataFrame, Mapping[str, Value]], Any]
"""From records with their fields, and the parameters, to what has a ``writeStream``."""


@dataclass(frozen=True)
class Family:
    """Queries over one kind of record."""

    layout: Layout
    source: Callable[[Mapping[str, Value], int], Source]
    parameters: Mapping[str, Parameter]
    fields: Sequence[str]
    """Those that any query asks for."""

    def read(self, records: DataFrame) -> DataFrame:
        """The fields as columns, and the event time."""
        time = F.timestamp_seconds(self.layout.column("t")).alias(TIME)
        return records.select(time, *(self.layout.column(name).alias(name) for name in self.fields))


@dataclass(frozen=True)
class StreamQuery:
    name: str
    description: str
    family: Family
    tailrace: Build
    spark: Build
    sql: str
    """The whole answer, over the table ``records`` with the time in seconds as ``t``."""
    windowed: bool = True
    rest: Callable[[DataFrame], DataFrame] | None = None
    """What both versions leave to the sink, in their measured time."""


def delay(values: Mapping[str, Value]) -> str:
    return f"{int(values['delay_s'])} seconds"


def whole_answer(query: StreamQuery, files: Sequence[Path]) -> pa.Table:
    """What must have been said after these files and infinitely many more that add nothing."""
    with duckdb.connect() as database:
        _view(database, query.family, files)
        return database.sql(query.sql).to_arrow_table()


def answer(query: StreamQuery, files: Sequence[Path], values: Mapping[str, Value], lag: int = 0) -> pa.Table:
    """What must have been said after these files; ``lag``: of so many of them the watermark knows nothing yet."""
    rows = whole_answer(query, files)
    return rows.filter(pc.less_equal(rows[CLOSES_BY], _mark(query, files, values, lag))) if query.windowed else rows


def further_answer(
    query: StreamQuery, files: Sequence[Path], further: int, values: Mapping[str, Value], lag: int = 0
) -> pa.Table:
    """The part of ``answer`` that the last ``further`` files have added."""
    rows, earlier = answer(query, files, values, lag), files[:-further]
    if query.windowed:
        return rows.filter(pc.greater(rows[CLOSES_BY], _mark(query, earlier, values, lag)))
    return rows.filter(pc.greater(rows[TIME], _newest(query.family, earlier)))


def _mark(query: StreamQuery, files: Sequence[Path], values: Mapping[str, Value], lag: int) -> int:
    seen = files[: len(files) - lag]
    return (_newest(query.family, seen) if seen else 0) - int(values["delay_s"])


def final_rows(query: StreamQuery, rows: pa.Table) -> pa.Table:
    """Output rows with the answer's columns: times in seconds, the window as its end."""
    columns = {name: rows[name] for name in rows.column_names if name not in ("epoch", WINDOW)}
    if WINDOW in rows.column_names:
        columns[CLOSES_BY] = pc.struct_field(rows[WINDOW], "end")
    for name, values in columns.items():
        if pa.types.is_timestamp(values.type):
            columns[name] = values.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            columns[name] = pc.divide(columns[name], 1_000_000)
    return pa.table(columns)


def workload(query: StreamQuery) -> Workload:
    family = query.family
    parameters = {**PARAMETERS, **family.parameters}

    def inputs(settings: Settings) -> Iterator[Batch]:
        return named(FEED, batches(family.source(settings.values, settings.seed), family.layout, settings))

    def oracle(files: Files, settings: Settings) -> pa.Table:
        return answer(query, files[FEED], settings.values)

    def rest(rows: DataFrame, values: Mapping[str, Value]) -> DataFrame:
        assert query.rest is not None
        return query.rest(rows)

    engines = {OURS: query.tailrace, "spark-rocksdb": query.spark, "spark-memory": query.spark}
    return Workload(
        name=query.name,
        description=query.description,
        feeds={FEED: SCHEMA},
        inputs=inputs,
        queries={name: partial(_writer, family, build) for name, build in engines.items()},
        oracle=oracle,
        rests=dict.fromkeys(engines, rest) if query.rest is not None else {},
        final=partial(final_rows, query),
        parameters=parameters,
        rows=int(parameters["rate"].default) * BATCH_S,
    )


def _writer(family: Family, build: Build, feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    return build(family.read(feeds[FEED]), values).writeStream.outputMode("append")


def _view(database: duckdb.DuckDBPyConnection, family: Family, files: Sequence[Path]) -> None:
    database.register("texts", pads.dataset([str(path) for path in files], format="parquet"))
    fields = ", ".join(f"{family.layout.sql(name)} AS {name}" for name in ("t", *family.fields))
    database.execute(f"CREATE TEMP VIEW records AS SELECT {fields} FROM texts")


def _newest(family: Family, files: Sequence[Path]) -> int:
    with duckdb.connect() as database:
        _view(database, family, files)
        found = database.sql("SELECT coalesce(max(t), 0) FROM records").fetchone()
    assert found is not None
    return int(found[0])
