"""A join with a lookup table on a state server, and which backend reads the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from tailrace.operators.base import Operator
from tailrace.operators.kind import OperatorRuntime
from tailrace.operators.lookup.backend import Asker, Backend
from tailrace.operators.lookup.dbapi import DbApiTable
from tailrace.operators.lookup.operator import LookupJoin
from tailrace.operators.lookup.redis.table import RedisTable
from tailrace.operators.lookup.spec import LookupSpec
from tailrace.operators.lookup.sqlite import SqliteTable
from tailrace.operators.lookup.warm_up import warm_up_lookup
from tailrace.operators.resources import Resources
from tailrace.state.tuning import DEFAULT_TUNING, Tuning


def _parquet_table(spec: LookupSpec, options: dict[str, Any], folder: str) -> Backend:
    from tailrace.operators.lookup.parquet import ParquetTable  # lazy: Arrow's file systems would be 9 MB more a server

    return ParquetTable(spec, options, folder)


BACKENDS: dict[str, Callable[[LookupSpec, dict[str, Any], str], Backend]] = {
    "dbapi": DbApiTable,
    "parquet": _parquet_table,
    "redis": RedisTable,
    "sqlite": SqliteTable,
}
"""By the name that ``api.tables`` gives a table. Each is made from the description of the join, the table's options and
a folder for what it brings into an order of its own.
"""


def lookup_operator(
    spec: LookupSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: Tuning = DEFAULT_TUNING
) -> LookupJoin:
    asker = Asker(spec, BACKENDS[spec.table.backend](spec, json.loads(spec.table.options), folder))
    return LookupJoin(spec, shards, asker, memory_bytes=memory_bytes, tuning=tuning)


def _operator(spec: LookupSpec, shards: Iterable[int], given: Resources) -> Operator:
    memory_bytes, folder = given.room
    return lookup_operator(spec, shards, memory_bytes=memory_bytes, folder=folder, tuning=given.tuning)


def _no_sections(
    spec: LookupSpec, batches: Sequence[pa.RecordBatch], horizon: int, *, complete: bool
) -> pa.RecordBatch:
    raise AssertionError(f"{spec.name} keeps no state, and has no sections")


RUNTIME = OperatorRuntime(_operator, _no_sections, None, warm_up_lookup)
