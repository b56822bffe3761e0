"""Redis, Parquet and DB-API tables, each behind the real thing, against a dictionary; what is refused; secrets."""

from __future__ import annotations

import json
import random
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace as tr
from tailrace.api.tables import LookupTable
from tailrace.errors import AnalysisError, TableError
from tailrace.ids import Micros
from tailrace.lab.servers.redis import RedisServer
from tailrace.operators.lookup.backend import Asker
from tailrace.operators.lookup.dbapi import DbApiTable
from tailrace.operators.lookup.parquet import ParquetTable
from tailrace.operators.lookup.redis.connection import RedisAddress, RedisConnection
from tailrace.operators.lookup.redis.table import RedisTable
from tailrace.operators.lookup.spec import LookupSpec, TableSpec
from tailrace.operators.lookup.sqlite import SqliteTable
from tailrace.operators.planning.user_functions import packed
from tailrace.state.rows.columns import arrow_type
from tailrace.types import DataType, Field

COLUMNS = {
    "text": ("string", lambda rng: "".join(rng.choice("aä€\r\n$ ") for _ in range(rng.randrange(9)))),
    "blob": ("binary", lambda rng: rng.randbytes(rng.randrange(20))),
    "big": ("bigint", lambda rng: rng.randrange(-(2**63), 2**63)),
    "small": ("int", lambda rng: rng.randrange(-(2**31), 2**31)),
    "real": ("double", lambda rng: rng.choice([0.5, -1e300, 1 / 3])),
    "exact": ("decimal(30,3)", lambda rng: Decimal(rng.randrange(-(10**29), 10**29)).scaleb(-3)),
    "day": ("date", lambda rng: date.fromordinal(rng.randrange(1, 3_000_000))),
    "at": ("timestamp", lambda rng: datetime.fromtimestamp(rng.randrange(4_000_000_000), UTC)),
    "is": ("boolean", lambda rng: rng.random() < 0.5),
}
KEYS = {
    "string": lambda n: f"ключ {n}\r\n",
    "bigint": lambda n: n * 10**15,
    "int": lambda n: -n,
    "date": lambda n: date.fromordinal(700_000 + n),
}
Rows = dict[tuple[Any, ...], tuple[Any, ...]]


def spec_of(table: LookupTable, key_types: tuple[str, ...], columns: tuple[str, ...]) -> LookupSpec:
    keys = tuple(Field(f"k{n}", DataType(name)) for n, name in enumerate(key_types))
    values = tuple(Field(name, DataType(COLUMNS[name][0])) for name in columns)
    code = "" if table.connect is None else packed(table.connect)
    described = TableSpec(table.backend, table.shown, table.retry, json.dumps(dict(table.options)), code)
    return LookupSpec("lookup", keys, (), values, tuple(columns), described, False, None, shards=4)


def drawn(key_types: tuple[str, ...], columns: tuple[str, ...], count: int) -> tuple[Rows, Rows]:
    """Rows that the table has, and keys that it has not."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = {
        tuple(KEYS[name](n + place) for place, name in enumerate(key_types)): tuple(
            None if len(columns) > 1 and rng.random() < 0.1 else COLUMNS[name][1](rng) for name in columns
        )
        for n in range(count)
    }
    kept = {key: row for key, row in rows.items() if rng.random() < 0.7 and any(cell is not None for cell in row)}
    return kept, rows


def check(backend: Any, spec: LookupSpec, table: Rows, looked_up: Rows) -> None:
    keys = list(looked_up)
    random.shuffle(keys)
    asker = Asker(spec, backend)
    try:
        arrays = [pa.array(column, arrow_type(field.type)) for column, field in zip(zip(*keys), spec.keys)]
        answer = asker.ask(arrays)
        assert answer.there.tolist() == [key in table for key in keys]
        for value, array in zip(spec.values, answer.values, strict=True):
            assert array.type == arrow_type(value.type, large=True)
        message = list(zip(*(array.to_pylist() for array in answer.values)))
        assert [row for row, key in zip(message, keys) if key in table] == [table[key] for key in keys if key in table]
        assert not asker.ask([array.slice(0, 0) for array in arrays]).there.any()
    finally:
        asker.close()


# Redis ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(password=True, durable=True) as server:
        yield server


def say(redis: RedisServer, *commands: list[bytes], database: int = 0) -> None:
    connection = RedisConnection(RedisAddress("127.0.0.1", redis.port, database, False, 5.0, "", redis.password))
    sent = [b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in c) for c in commands]
    connection._send(b"".join(sent))
    connection._receive(len(commands), len(commands))
    connection.close()


def text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return (value.isoformat() if isinstance(value, datetime) else str(value)).encode()


def redis_table(redis: RedisServer, keys: tuple[str, ...], database: int = 0, **how: Any) -> LookupTable:
    url = redis.url.removesuffix("0") + str(database)
    return tr.table.redis(url, [f"k{n}" for n in range(len(keys))], "x string", **how)


@pytest.mark.parametrize("keys", [("string",), ("bigint",), ("date", "int")])
def test_redis_hashes(redis: RedisServer, keys: tuple[str, ...]) -> None:
    columns = tuple(COLUMNS)
    table, looked_up = drawn(keys, columns, 1500)  # more than one round trip
    prefix = f"{'-'.join(keys)}:"
    commands = [
        [
            b"HSET",
            prefix.encode() + b":".join(map(text, key)),
            *(word for name, cell in zip(columns, row) if cell is not None for word in (name.encode(), text(cell))),
        ]
        for key, row in table.items()
    ]
    say(redis, *commands, database=3)
    described = redis_table(redis, keys, 3, prefix=prefix)
    spec = spec_of(described, keys, columns)
    check(RedisTable(spec, dict(described.options)), spec, table, looked_up)


@pytest.mark.parametrize("column", ["text", "blob", "big", "at"])
def test_redis_strings(redis: RedisServer, column: str) -> None:
    table, looked_up = drawn(("string",), (column,), 40)
    say(redis, *([b"SET", f"{column}/".encode() + text(key[0]), text(row[0])] for key, row in table.items()))
    described = redis_table(redis, ("string",), prefix=f"{column}/")
    spec = spec_of(described, ("string",), (column,))
    check(RedisTable(spec, dict(described.options)), spec, table, looked_up)


def test_redis_refuses_in_words_without_the_password(redis: RedisServer) -> None:
    say(redis, [b"SET", b"w/a", b"no number"])
    described = redis_table(redis, ("string",), prefix="w/")
    assert redis.password not in repr(described) + described.shown
    spec = spec_of(described, ("string",), ("big",))
    options = dict(described.options)
    with pytest.raises(TableError, match="column 'big' is not a bigint") as wrong:
        Asker(spec, RedisTable(spec, options)).ask([pa.array(["a"])])
    with pytest.raises(TableError, match="hold no hashes"):
        Asker(spec, RedisTable(spec, {**options, "layout": "hash"})).ask([pa.array(["a"])])
    with pytest.raises(TableError, match="right user and password") as refused:
        Asker(spec, RedisTable(spec, {**options, "password": "pw-5678"})).ask([pa.array(["a"])])
    assert redis.password not in str(wrong.value) and "pw-5678" not in str(refused.value)


def test_a_redis_server_that_comes_back_is_asked_again(redis: RedisServer) -> None:
    say(redis, [b"SET", b"r/a", b"1"])
    described = redis_table(redis, ("string",), prefix="r/", onConnectionLoss="fail")
    spec = spec_of(described, ("string",), ("big",))
    backend = RedisTable(spec, dict(described.options))
    asker = Asker(spec, backend)
    assert asker.ask([pa.array(["a"])]).there.all()
    redis.kill()
    with pytest.raises(TableError, match=r"Redis 127.0.0.1:\d+/0.* cannot be reached"):
        asker.ask([pa.array(["a"])])
    redis.restart()
    assert asker.ask([pa.array(["a"])]).there.all()
    asker.close()


def test_an_url_is_refused_without_being_shown() -> None:
    for url in ("redis://:pw-1@x:y", "http://:pw-1@host", "redis://:pw-1@", "redis://:pw-1@host/a", "redis://h?x=pw-1"):
        with pytest.raises(AnalysisError) as refused:
            tr.table.redis(url, "k", "v string")
        assert "pw-1" not in str(refused.value)
    described = tr.table.redis("rediss://me:p%40ss@h:7/2", "k", "v string", onConnectionLoss="fail")
    assert described.shown == "Redis h:7/2" and described.retry == Micros(0)
    assert (described.options["user"], described.options["password"], described.options["tls"]) == ("me", "p@ss", True)


@pytest.mark.parametrize("certified", [True, False])
def test_a_server_whose_tls_is_wrong_is_asked_once(tmp_path: Path, certified: bool) -> None:
    """Its certificate is as little trusted after half a minute; nor does a server without TLS learn it by then."""
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*made.split(), "-keyout", "key", "-out", "cert"], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    calls: list[int] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            calls.append(1)
            with line, suppress(OSError):
                if certified:
                    context.wrap_socket(line, server_side=True).close()
                else:
                    line.sendall(b"-ERR what is this?\r\n")
                    line.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        url = f"rediss://:pw-1234@localhost:{listener.getsockname()[1]}"
        described = tr.table.redis(url, "k0", "big bigint", retry="30 seconds")
        spec = spec_of(described, ("string",), ("big",))
        asker = Asker(spec, RedisTable(spec, dict(described.options)))
        said = r"certificate is not trusted: .* SSL_CERT_FILE" if certified else r"does not speak TLS .* Give redis://"
        with pytest.raises(TableError, match=said) as refused:
            asker.ask([pa.array(["a"])])
        assert "pw-1234" not in str(refused.value) and len(calls) == 1
        asker.close()
        listener.shutdown(socket.SHUT_RDWR)
        server.join(10)


# Parquet -------------------------------------------------------------------------------------------------------------


def write(path: Path, spec: LookupSpec, table: Rows, files: int) -> None:
    path.mkdir()
    rows = [(*key, *row) for key, row in table.items()]
    random.shuffle(rows)
    schema = pa.schema([(field.name, arrow_type(field.type)) for field in (*spec.keys, *spec.values)])
    for number in range(files):
        own = list(zip(*rows[number::files])) or [()] * len(schema)
        arrays = [pa.array(column, field.type) for column, field in zip(own, schema)]
        pq.write_table(pa.table(arrays, schema=schema), path / f"{number}.parquet", row_group_size=50)


@pytest.mark.parametrize(
    ("keys", "bucket_bytes"), [(("string",), 1 << 30), (("bigint",), 5000), (("date", "int"), 900)]
)
def test_parquet(tmp_path: Path, keys: tuple[str, ...], bucket_bytes: int) -> None:
    table, looked_up = drawn(keys, tuple(COLUMNS), 300)
    described = tr.table.parquet(str(tmp_path / "t"), [f"k{n}" for n in range(len(keys))])
    spec = spec_of(described, keys, tuple(COLUMNS))
    write(tmp_path / "t", spec, {**table, (None,) * len(keys): next(iter(table.values()))}, files=3)
    check(ParquetTable(spec, dict(described.options), str(tmp_path), bucket_bytes), spec, table, looked_up)


def test_parquet_reads_what_spark_would(tmp_path: Path) -> None:
    """Logs of Delta and files of a writer that failed are Parquet files too, and lie in folders that are no data."""
    table, looked_up = drawn(("string",), ("big",), 40)
    described = tr.table.parquet(str(tmp_path / "_t"), "k0")
    spec = spec_of(described, ("string",), ("big",))
    write(tmp_path / "_t", spec, table, files=2)
    for name in ("_delta_log", "_temporary/0/task", ".hidden/part=1"):
        (tmp_path / "_t" / name).mkdir(parents=True)
        shutil.copy(tmp_path / "_t" / "0.parquet", tmp_path / "_t" / name / "0.parquet")
    (tmp_path / "_t" / "_day=1").mkdir()  # a partition's
    (tmp_path / "_t" / "1.parquet").rename(tmp_path / "_t" / "_day=1" / "1.parquet")
    check(ParquetTable(spec, dict(described.options), str(tmp_path)), spec, table, looked_up)


def test_parquet_says_what_is_wrong(tmp_path: Path) -> None:
    described = tr.table.parquet(str(tmp_path / "t"), "k0")
    spec = spec_of(described, ("int",), ("big",))
    with pytest.raises(TableError, match="cannot be read"):
        Asker(spec, ParquetTable(spec, dict(described.options), str(tmp_path))).ask([pa.array([1], pa.int32())])
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"k0": pa.array([7, 3, 7]), "big": [1, 2, 3]}), tmp_path / "t" / "0.parquet")
    with pytest.raises(TableError, match="such as k0=7"):
        Asker(spec, ParquetTable(spec, dict(described.options), str(tmp_path))).ask([pa.array([1], pa.int32())])


# DB-API --------------------------------------------------------------------------------------------------------------

SQL = ("text", "blob", "big", "small", "real")


@pytest.mark.parametrize(("keys", "style"), [(("string",), "qmark"), (("bigint", "int"), "named")])
def test_dbapi(tmp_path: Path, keys: tuple[str, ...], style: str) -> None:
    path = str(tmp_path / "t.db")
    names = [f"k{n}" for n in range(len(keys))]
    table, looked_up = drawn(keys, SQL, 120)
    with sqlite3.connect(path) as base:
        base.execute(f"create table t ({', '.join([*names, *SQL])})")
        marks = ", ".join("?" * (len(names) + len(SQL)))
        base.executemany(f"insert into t values ({marks})", [(*key, *row) for key, row in table.items()])
    base.close()
    left = ", ".join(names) if len(names) == 1 else f"({', '.join(names)})"
    # One word for each row of keys: that is how SQLite takes them.
    query = f"select * from t where {left} in ({'{keys}' if len(names) == 1 else 'values {keys}'})"
    described = tr.table.dbapi(
        lambda: sqlite3.connect(path, check_same_thread=False), query, names, "x string", paramstyle=style, batch=50
    )
    spec = spec_of(described, keys, SQL)
    check(DbApiTable(spec, dict(described.options)), spec, table, looked_up)


@pytest.mark.parametrize("keys", [("string",), ("bigint", "int")])
def test_sqlite(tmp_path: Path, keys: tuple[str, ...]) -> None:
    path, names = str(tmp_path / "t?%.db"), [f"k{n}" for n in range(len(keys))]
    table, asked = drawn(keys, SQL, 1200)
    with sqlite3.connect(path) as base:
        base.execute(f'create table "a ""table" ({", ".join([*names, *SQL])}, primary key ({", ".join(names)}))')
        marks = ", ".join("?" * (len(names) + len(SQL)))
        base.executemany(f'insert into "a ""table" values ({marks})', [(*key, *row) for key, row in table.items()])
    base.close()
    described = tr.table.sqlite(path, 'a "table', names, "x string")
    spec = spec_of(described, keys, SQL)
    check(SqliteTable(spec, dict(described.options)), spec, table, asked)


def test_a_sqlite_file_is_only_read(tmp_path: Path) -> None:
    described = tr.table.sqlite(str(tmp_path / "none.db"), "t", "k0", "big bigint", onConnectionLoss="fail")
    spec = spec_of(described, ("int",), ("big",))
    with pytest.raises(TableError, match=r"SQLite table t of .*none\.db cannot be reached"):
        Asker(spec, SqliteTable(spec, dict(described.options))).ask([pa.array([1], pa.int32())])
    assert not (tmp_path / "none.db").exists()


def test_dbapi_says_what_is_wrong(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    with sqlite3.connect(path) as base:
        base.execute("create table t (k0, big)")
        base.executemany("insert into t values (?, ?)", [(1, 1), (1, 2)])
    base.close()

    def open_table(query: str, where: str = path) -> None:
        described = tr.table.dbapi(lambda: sqlite3.connect(where), query, "k0", "big bigint", onConnectionLoss="fail")
        spec = spec_of(described, ("int",), ("big",))
        Asker(spec, DbApiTable(spec, dict(described.options))).ask([pa.array([1], pa.int32())])

    for query, message in (
        ("select * from t where k0 in ({keys})", "more than one row for key"),
        ("select big from t where k0 in ({keys})", "gives no column 'k0'"),
        ("select k0, 'x' as big from t where k0 in ({keys}) limit 1", "column 'big' is not a bigint"),
    ):
        with pytest.raises(TableError, match=message):
            open_table(query)
    with pytest.raises(TableError, match="cannot be reached: OperationalError"):
        open_table("select * from t where k0 in ({keys})", str(tmp_path / "no" / "t.db"))
