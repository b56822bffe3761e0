"""Whether the rows that an engine outputs in its last batches are the oracle's, though the earlier ones were dropped.

In append mode they are the answer so far without the answer before. In update mode the last word on each key must be
the answer's, and no key may be missing whose row the last batches changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from tailrace.lab import registry
from tailrace.lab.registry import OURS, Value
from tailrace.lab.run_check import check_rows
from tailrace.lab.workloads.nexmark.answers import closed
from tailrace.lab.workloads.nexmark.queries.version import Mode, Version
from tailrace.lab.workloads.nexmark.workloads import FEED, PREFIX, VERSIONS, params_of, watermark_ms, whole_answer


def check_further_rows(
    query: str, engine: str, output: pa.Table | None, files: list[Path], further: int, values: Mapping[str, Value]
) -> int:
    """``output``: in the batches of the last ``further`` files. Gives how many rows were compared."""
    version = VERSIONS[engine][query]
    assert isinstance(version, Version)
    whole = whole_answer(query, {FEED: files}, values)
    earlier = files[:-further]
    if version.closes_by is not None:
        # Spark closes windows by what was seen before a batch.
        lag = 0 if engine == OURS else 1
        held_back_ms = version.holds_back_ms(params_of(values))
        now, then = (
            watermark_ms(query, {FEED: seen[: len(seen) - lag]}, values) - held_back_ms for seen in (files, earlier)
        )
        expected = without(closed(whole, now, version.closes_by), closed(whole, then, version.closes_by))
    else:
        expected = without(whole, whole_answer(query, {FEED: earlier}, values))
    if output is None:
        found = whole.slice(0, 0)
    else:
        workload = registry.workload(PREFIX + query)
        found = workload.final(workload.finish[engine](output, values))
        found = found.select(whole.column_names).cast(whole.schema)
    if version.mode is Mode.UPDATE:
        # A key that was touched may be said though its row is what it was.
        expected = pa.concat_tables([expected, without(_shared(found, whole), expected)])
    check_rows(f"{query} on {engine}", found, expected)
    return int(expected.num_rows)


def without(rows: pa.Table, others: pa.Table) -> pa.Table:
    return _sets("EXCEPT ALL", rows, others)


def _shared(rows: pa.Table, others: pa.Table) -> pa.Table:
    return _sets("INTERSECT ALL", rows, others)


def _sets(how: str, rows: pa.Table, others: pa.Table) -> pa.Table:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("a", rows)
        database.register("b", others)
        return database.sql(f"FROM a {how} FROM b").to_arrow_table().cast(rows.schema)
