"""What only the sink of any database has: values as its module takes them, the update of rows, what is refused."""

from __future__ import annotations

import datetime
import decimal
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.sinks.cases import batches
from tailrace.api.table_options import parse_table_options
from tailrace.errors import AnalysisError, TableError
from tailrace.sinks.contract import Owner, Table
from tailrace.sinks.registry import table_of

ROWS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "sink.db"
    with closing(sqlite3.connect(made)) as db:
        db.execute("create table sums (k integer, v integer, \"by me\" text default 'me')")
        db.executemany("insert into sums values (?, ?, ?)", [(1, 10, "you"), (2, 20, "you")])
        db.commit()
    return made


def table(path: Path, schema: pa.Schema = ROWS, **options: str) -> Table:
    given = {"module": "sqlite3", "connect": json.dumps({"database": str(path)}), "table": "sums", **options}
    return table_of(parse_table_options("dbapi", given), schema)


def written(path: Path, rows: list[Any], schema: pa.Schema = ROWS, **options: str) -> list[Any]:
    one = table(path, schema, **options)
    one.write(one.open(Owner("query", 1)) + 1, batches(rows, schema), lambda: None)
    one.close()
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"select * from {options.get('table', 'sums')} order by rowid").fetchall()


def test_update_changes_the_rows_that_are_there_and_no_other_column(path: Path) -> None:
    rows = [(1, 11), (3, 30), (1, 12)]
    assert written(path, rows, writeMode="update", keyColumns="k") == [(1, 12, "you"), (2, 20, "you")]


def test_upsert_keeps_the_columns_that_rows_do_not_have(path: Path) -> None:
    assert written(path, [(3, 30), (2, 21)], keyColumns="k") == [(1, 10, "you"), (2, 21, "you"), (3, 30, "me")]


def test_values_as_sqlite_takes_them(path: Path) -> None:
    fields = {
        "n": (pa.int32(), 7),
        "x": (pa.float64(), 1.5),
        "flag": (pa.bool_(), True),
        "text": (pa.string(), "it's"),
        "raw": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), datetime.date(2026, 1, 2)),
        "at": (pa.timestamp("us", "UTC"), datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)),
        "cost": (pa.decimal128(9, 2), decimal.Decimal("12.30")),
    }
    schema = pa.schema([(name, type_) for name, (type_, _) in fields.items()])
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table kinds (n int, x real, flag int, text text, raw blob, day text, at text, cost text)")
    rows = [tuple(value for _, value in fields.values()), (None,) * len(fields)]
    found = written(path, rows, schema, table="kinds")
    assert found[0] == (7, 1.5, 1, "it's", b"\x00\xff", "2026-01-02", "2026-01-02 03:04:05.678901+00:00", "12.30")
    assert found[1] == (None,) * len(fields)


def test_more_rows_than_a_statement_takes(path: Path) -> None:
    rows = [(k % 1_500, k) for k in range(3_000)]
    assert len(written(path, rows, keyColumns="k")) == 1_500  # 1 and 2 were there
    assert written(path, rows)[-1][:2] == rows[-1]


def test_what_has_no_place_is_refused(path: Path) -> None:
    with pytest.raises(AnalysisError, match="no_such_module"):
        table(path, module="no_such_module")
    with pytest.raises(AnalysisError, match="no database module"):
        table(path, module="json")
    with pytest.raises(AnalysisError, match="connect") as wrong:
        table(path, connect="password=secret")
    assert "secret" not in str(wrong.value)
    assert "secret" not in repr(parse_table_options("dbapi", {"module": "m", "connect": "secret", "table": "t"}))
    with pytest.raises(AnalysisError, match="gone"):
        table(path, pa.schema([("gone", pa.int64())]), keyColumns="gone", table="sums").open(Owner("query", 1))
    with pytest.raises(TableError, match="null in its key column 'k'"):
        written(path, [(None, 1)], keyColumns="k")


def test_an_entry_that_is_gone_is_not_taken_for_none(path: Path) -> None:
    one = table(path)
    one.open(Owner("query", 1))
    with closing(sqlite3.connect(path)) as db:
        db.execute("delete from tailrace_epochs")
        db.commit()
    with pytest.raises(TableError, match="entry of this query"):
        one.write(0, batches([(1, 1)], ROWS), lambda: None)
