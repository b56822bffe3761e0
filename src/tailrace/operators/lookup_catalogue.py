"""Which backend reads a table's description."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tailrace.env.shaped_reads import ReadDevice
from tailrace.operators.dbapi_table import DbApiTable
from tailrace.operators.lookup_join import LookupJoin
from tailrace.operators.parquet_table import ParquetTable
from tailrace.operators.redis_table import RedisTable
from tailrace.operators.specs.lookup import Backend, LookupSpec
from tailrace.operators.table_backend import Asker
from tailrace.operators.table_backend import Backend as AnyBackend
from tailrace.state.tuning import USUAL_COLD, ColdTuning


def lookup_operator(
    spec: LookupSpec, shards: Iterable[int], *, memory_bytes: int, folder: str, tuning: ColdTuning = USUAL_COLD
) -> LookupJoin:
    """``folder``: where a backend keeps what it has put in order."""
    asker = Asker(spec, _backend(spec, folder), ReadDevice(tuning.read_s, tuning.depth))
    return LookupJoin(spec, shards, asker, memory_bytes=memory_bytes, tuning=tuning)


def _backend(spec: LookupSpec, folder: str) -> AnyBackend:
    options = json.loads(spec.table.options)
    match spec.table.backend:
        case Backend.REDIS:
            return RedisTable(spec, options)
        case Backend.PARQUET:
            return ParquetTable(spec, options, folder)
        case Backend.DBAPI:
            return DbApiTable(spec, options)
