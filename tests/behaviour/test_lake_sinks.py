"""What Delta and Iceberg tables have: values of every type, other writers beside the query, keys that are null."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.sinks.cases import SCHEMA, DeltaCase, IcebergCase, appended, batches, rows_of
from tailrace.api.table_options import parse_table_options
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks import iceberg
from tailrace.sinks.contract import Owner, Table
from tailrace.sinks.epochs import EpochWriter

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
TIME = pa.timestamp("us", "UTC")
COLUMNS = {
    "window": (pa.struct([("start", TIME), ("end", TIME)]), {"start": AT, "end": AT}),
    "name": (pa.string(), "lä\n'"),
    "x": (pa.float64(), -0.5),
    "flag": (pa.bool_(), True),
    "amount": (pa.decimal128(20, 2), Decimal("-1.50")),
    "raw": (pa.binary(), b"\x00\xff"),
    "day": (pa.date32(), date(1999, 12, 31)),
    "at": (TIME, AT),
    "listed": (pa.list_(pa.int64()), [1, None, 3]),
}


@pytest.fixture(params=[DeltaCase, IcebergCase])
def case(request: pytest.FixtureRequest, short_path: Path) -> Iterator[DeltaCase | IcebergCase]:
    made = request.param({"path": str(short_path / "table"), "upsert": ""})
    made.create()
    yield made


def opened(table: Table) -> Table:
    table.open(Owner("query", 0))
    return table


def read(case: DeltaCase | IcebergCase, table: str) -> pa.Table:
    if isinstance(case, DeltaCase):
        return DeltaTable(table).to_pyarrow_table()
    return case.catalog().load_table(table).scan().to_arrow()


@pytest.mark.parametrize("upsert", [False, True])
def test_values_of_every_type_come_back_from_a_table_that_was_made(
    case: DeltaCase | IcebergCase, upsert: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_PIECE_BYTES", 1)
    schema = pa.schema([("k", pa.int64()), *((name, type_) for name, (type_, _) in COLUMNS.items())])
    rows = [(1, *(value for _, value in COLUMNS.values())), (2, *(None for _ in COLUMNS))]
    name = f"{case.place['path']}-more" if isinstance(case, DeltaCase) else "shop.more"
    table = opened(case.table(schema, upsert, **{"path" if isinstance(case, DeltaCase) else "table": name}))
    table.write(0, batches(rows, schema, size=1), lambda: None)
    found = read(case, name)
    assert sorted(found.to_pylist(), key=lambda row: row["k"]) == [dict(zip(schema.names, row)) for row in rows]


def test_others_may_write_to_the_table_too(case: DeltaCase | IcebergCase) -> None:
    """Also while an epoch is under way: then it is written once more."""
    other = pa.Table.from_batches(batches([(100, 100, "other")]))
    writer = EpochWriter(case.table(), Owner("query", 1), 60.0, lambda: None)
    times = []

    def rows() -> Iterator[pa.RecordBatch]:
        yield from batches(rows_of(1))
        times.append(1)
        if len(times) == 1 and isinstance(case, IcebergCase):
            case.catalog().load_table("shop.rows").append(other)

    writer.write(0, lambda: batches(rows_of(0)))
    if isinstance(case, DeltaCase):
        write_deltalake(case.place["path"], other, mode="append")
    writer.write(1, rows)
    assert sorted(case.read()) == sorted([*appended(2), (100, 100, "other")])
    assert len(times) == (2 if isinstance(case, IcebergCase) else 1)


def test_null_keys(case: DeltaCase | IcebergCase) -> None:
    null = [(None, 1, "one"), (None, 2, "two"), (3, 3, "three")]
    table = opened(case.table(upsert=True))
    if isinstance(case, IcebergCase):
        with pytest.raises(TableError, match="null in its key column 'k'"):
            table.write(0, batches(null), lambda: None)
        return
    for epoch in range(2):
        table.write(epoch, batches(null), lambda: None)
    assert sorted(case.read(), key=str) == sorted(null[1:], key=str)


def test_what_has_no_place_is_refused(case: DeltaCase | IcebergCase) -> None:
    less = pa.schema(list(SCHEMA)[:2])
    with pytest.raises(AnalysisError, match="'name'"):
        case.table(less).open(Owner("query", 1))
    with pytest.raises(AnalysisError, match="keyColumns"):
        case.table(writeMode="upsert")
    secret = {"storage.aws_secret_access_key": "s3cret", "catalog.credential": "s3cret"}
    given = {
        name: value for name, value in secret.items() if name.startswith(("storage", "catalog")[case.format != "delta"])
    }
    assert "s3cret" not in repr(parse_table_options(case.format, {**case.options(False), **given}))
