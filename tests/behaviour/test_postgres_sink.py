"""What only PostgreSQL's sink has: types, update by key, what it checks at the start, a server that goes and comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan

import psycopg
import pyarrow as pa
import pytest

from support.sinks.cases import PostgresCase, appended, batches, rows_of
from tailrace.errors import AnalysisError, QueryStopped, TableError
from tailrace.lab.servers.postgres import PostgresServer
from tailrace.sinks.contract import Owner, Table
from tailrace.sinks.epochs import EpochWriter

AT = datetime(2026, 1, 2, 3, 4, 5, 678901)
COLUMNS = {
    "flag": ("boolean", pa.bool_(), [True, False]),
    "small": ("smallint", pa.int16(), [-32768, 7]),
    "n": ("bigint", pa.int64(), [-(2**63), 2**63 - 1]),
    "wide": ("numeric", pa.int64(), [2**62, -1]),
    "x": ("double precision", pa.float64(), [0.1, float("-inf")]),
    "amount": ("numeric(20, 2)", pa.decimal128(20, 2), [Decimal("123456789012345678.90"), Decimal("-0.01")]),
    "name": ("text", pa.string(), ["", 'a "quoted" \\N, text\r\nin läines\t;']),
    "id": ("uuid", pa.string(), ["00000000-0000-0000-0000-000000000001"] * 2),
    "document": ("jsonb", pa.string(), ['{"a": 1}', "[]"]),
    "bytes": ("bytea", pa.binary(), [b"", bytes(range(256))]),
    "day": ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "at": ("timestamptz", pa.timestamp("us", "UTC"), [AT.replace(tzinfo=UTC), datetime(1900, 1, 1, tzinfo=UTC)]),
    "local": ("timestamp", pa.timestamp("us"), [AT, datetime(1900, 1, 1)]),
}


def case(postgres: PostgresServer, table: str, upsert: bool = False) -> PostgresCase:
    return PostgresCase({"url": postgres.url, "table": table, "upsert": "yes" if upsert else ""})


def opened(table: Table) -> Table:
    table.open(Owner("query", 0))
    return table


@pytest.mark.parametrize("upsert", [False, True])
def test_values_of_every_type_come_back(postgres: PostgresServer, upsert: bool) -> None:
    mode = "upsert" if upsert else "append"
    made = case(postgres, f"types_{mode}")
    made.create({"k": "bigint primary key", **{name: type_ for name, (type_, _, _) in COLUMNS.items()}})
    window = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"alter table types_{mode} add window_start timestamptz, add window_end timestamptz")
    fields = [("k", pa.int64()), *((name, type_) for name, (_, type_, _) in COLUMNS.items()), ("window", window)]
    bounds = {"start": AT.replace(tzinfo=UTC), "end": AT.replace(tzinfo=UTC)}
    rows = [[k, *(values[k] for _, _, values in COLUMNS.values()), bounds] for k in (0, 1)]
    rows += [[2, *(None for _ in COLUMNS), None], [3, *(values[0] for _, _, values in COLUMNS.values()), bounds]]
    rows[3][5] = float("nan")
    schema = pa.schema(fields)
    whole = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(zip(*rows), schema)], schema=schema)
    opened(made.table(schema, upsert=upsert)).write(0, iter([whole[:1], whole[1:3], whole[3:]]), lambda: None)
    with psycopg.connect(postgres.url) as connection:
        connection.execute("set time zone 'UTC'")
        found = sorted(connection.execute(f"select * from types_{mode}").fetchall())
    assert isnan(found[3][5])
    wanted = [[*row[:-1], *(row[-1] or {"start": None, "end": None}).values()] for row in rows]
    for row in (*found[:2], wanted[0], wanted[1]):
        assert len(row) == len(COLUMNS) + 3
    parsed = {'{"a": 1}': {"a": 1}, "[]": []}
    for row, want in zip(found[:3], wanted[:3]):
        as_read = [str(value) if name == "id" and value else value for name, value in zip(["k", *COLUMNS, "", ""], row)]
        assert as_read == [parsed.get(value, value) if isinstance(value, str) else value for value in want]


def test_update_changes_the_rows_that_are_there(postgres: PostgresServer) -> None:
    made = case(postgres, "updated", upsert=True)
    made.create()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("insert into updated select k, 0, 'before' from generate_series(0, 9) as k")
    opened(made.table(writeMode="update", keyColumns="k")).write(0, batches(rows_of(0)), lambda: None)
    last = {row[0]: row for row in rows_of(0)}
    assert sorted(made.read()) == [last[k] for k in range(10)]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"k": "bigint", "v": "integer", "name": "text"}, {}, ("'v'", "int4", "int64")),
        ({"k": "bigint", "v": "bigint", "name": "text", "more": "text not null"}, {}, ("'more'",)),
        ({"k": "bigint", "v": "bigint", "name": "text"}, {"keyColumns": "k"}, ("unique index", "(k)")),
        ({"k": "bigint", "v": "bigint", "name": "text"}, {"keyColumns": "K"}, ("'K'", "k, v, name")),
        ({"k": "bigint", "v": "bigint", "name": "text"}, {"writeMode": "update"}, ("keyColumns",)),
        (
            {"k": "bigint", "v": "bigint", "name": "text"},
            {"table": "no.such"},
            ('create table "no"."such"', '"k" bigint'),
        ),
    ],
)
def test_what_does_not_fit_is_said_at_the_start(
    postgres: PostgresServer, columns: dict[str, str], options: dict[str, str], words: tuple[str, ...]
) -> None:
    made = case(postgres, f"wrong{abs(hash(words))}")
    made.create(columns)
    with pytest.raises(AnalysisError) as refused:
        opened(made.table(**options))
    assert all(word in str(refused.value) for word in words), refused.value


def test_null_keys_are_one_key_or_refused(postgres: PostgresServer) -> None:
    made = case(postgres, "null_keys", upsert=True)
    made.create()
    null = [(None, 1, "one"), (None, 2, "two")]
    table = opened(made.table(upsert=True))
    with pytest.raises(TableError, match="nulls not distinct"):
        table.write(0, batches(null), lambda: None)
    table.close()
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("drop index null_keys_k_idx; create unique index on null_keys (k) nulls not distinct")
    table = opened(made.table(upsert=True))
    for epoch in range(2):
        table.write(epoch, batches(null), lambda: None)
    assert made.read() == [null[1]]


def test_no_error_tells_the_password(postgres: PostgresServer) -> None:
    made = case(postgres, "secret")
    made.create()
    wrong = f"{postgres.password}x"
    with pytest.raises(AnalysisError, match="password authentication failed") as refused:
        opened(made.table(url=postgres.url.replace(postgres.password, wrong)))
    assert wrong not in str(refused.value)
    table = opened(made.table())
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("alter table secret add check (v < 3)")
    with pytest.raises(TableError, match="violates check constraint") as failed:
        table.write(0, batches(rows_of(0)), lambda: None)
    assert postgres.password not in str(failed.value) + repr(made.table(url=postgres.url)) + repr(
        failed.value.__cause__
    )
    assert made.read() == []


def test_a_server_that_goes_is_waited_for_or_not() -> None:
    with PostgresServer() as server:
        made = case(server, "patient")
        made.create()
        hurried = EpochWriter(made.table(), Owner("query", 1), 0.0, lambda: None)
        hurried.write(0, lambda: batches(rows_of(0)))
        server.kill()
        with pytest.raises(TableError, match="sinkTimeout") as given_up:
            hurried.write(1, lambda: batches(rows_of(1)))
        assert server.password not in str(given_up.value)

        stopped = EpochWriter(made.table(), Owner("query", 1), 600.0, lambda: None)
        threading.Timer(0.2, stopped.stop).start()
        with pytest.raises(QueryStopped):
            stopped.write(1, lambda: batches(rows_of(1)))

        server.restart()
        patient = EpochWriter(made.table(), Owner("query", 2), 60.0, lambda: None)

        def rows() -> Iterator[pa.RecordBatch]:
            """The server dies in the middle of epoch 2 for once."""
            for number, batch in enumerate(batches(rows_of(2))):
                if number == 1 and dying.pop():
                    server.kill()
                    threading.Timer(0.2, server.restart).start()
                yield batch

        dying = [False, True]
        patient.write(1, lambda: batches(rows_of(1)))
        patient.write(2, rows)
        assert sorted(made.read()) == appended(3)
