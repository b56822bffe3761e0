"""What the code of the pages finds when it runs: small input files below ``/data``, which stands for a folder of the
test.

Each stream has a few files of rows within some minutes of event time, so that windows close and sessions end.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from tailrace.testing import ScriptedSource

DATA = "/data/"
_START = datetime(2026, 1, 1, 12)
_FILES = 3
_ROWS = 40
_TIME = pa.timestamp("us", tz="UTC")

SCHEMAS = {
    "bids": pa.schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "ts": _TIME}),
    "views": pa.schema({"ad": pa.int64(), "user": pa.string(), "seen": _TIME}),
    "clicks": pa.schema({"ad": pa.int64(), "cost": pa.float64(), "clicked": _TIME}),
    "events": pa.schema({"device": pa.string(), "value": pa.float64(), "ts": _TIME}),
    "offers": pa.schema({"item": pa.int64(), "discount": pa.float64(), "begins": _TIME, "ends": _TIME}),
    "trades": pa.schema({"share": pa.string(), "price": pa.float64(), "count": pa.int64(), "ts": _TIME}),
    "orders": pa.schema({"item": pa.int64(), "amount": pa.int64(), "at": _TIME}),
}


def prepare(folder: Path) -> None:
    """Write the files of every stream, and the tables that the pages look rows up in."""
    for name, schema in SCHEMAS.items():
        source = ScriptedSource(folder / name, schema)
        source.add([_rows(schema, file) for file in range(_FILES)])
    items = pa.table({"auction": pa.array(range(8), pa.int64()), "seller": [f"seller {i}" for i in range(8)]})
    (folder / "sellers").mkdir()
    pa.parquet.write_table(items, folder / "sellers" / "part-0.parquet")


def _rows(schema: pa.Schema, file: int) -> pa.Table:
    numbers = range(file * _ROWS, (file + 1) * _ROWS)
    return pa.table({field.name: [_value(field, i) for i in numbers] for field in schema}, schema=schema)


def _value(field: pa.Field, i: int) -> object:
    if field.name == "ends":
        return _START + timedelta(seconds=3 * i + 60)
    if pa.types.is_timestamp(field.type):
        return _START + timedelta(seconds=3 * i)
    if pa.types.is_string(field.type):
        return f"{field.name}-{i % 5}"
    if pa.types.is_floating(field.type):
        return i % 11 / 4
    return i % 7 if field.name in ("auction", "ad", "item") else i % 13
