"""What the behaviour suite of table sinks needs of each: a table in it, and its rows as an outside reader sees them."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from tailrace.api.table_options import parse_table_options
from tailrace.sinks.contract import Table
from tailrace.sinks.registry import table_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("name", pa.string())])
Row = tuple[Any, ...]


def rows_of(epoch: int, rows: int = 40) -> list[Row]:
    """The rows of an epoch, the same whenever it is asked for. Keys come again in later epochs, and in the same one."""
    return [((epoch * 7 + i) % 31, epoch * 1000 + i, f"row {i} of {epoch}, 'it''s'") for i in range(rows)]


def batches(rows: list[Row], schema: pa.Schema = SCHEMA, size: int = 16) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(rows), size):
        columns = zip(*rows[at : at + size], strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def upserted(epochs: int) -> list[Row]:
    """What a table has in the end where the last row of each key counts."""
    last = {row[0]: row for epoch in range(epochs) for row in rows_of(epoch)}
    return sorted(last.values())


def appended(epochs: int) -> list[Row]:
    return sorted(row for epoch in range(epochs) for row in rows_of(epoch))


@dataclass(frozen=True)
class Case(ABC):
    """One empty table. ``place``: where it is, as JSON-able data that a child process may be given."""

    place: Mapping[str, str]
    ordered: ClassVar[bool] = False
    """Whether a reader finds rows in the order in which they were written."""

    @abstractmethod
    def create(self, columns: Mapping[str, str] | None = None) -> None:
        """Make the table, where a writer would not; ``columns``: other types than those of ``SCHEMA``."""

    @abstractmethod
    def options(self, upsert: bool) -> dict[str, str]: ...

    @property
    @abstractmethod
    def format(self) -> str: ...

    @abstractmethod
    def read(self) -> list[Row]:
        """All rows that a reader who knows nothing of epochs finds."""

    def misfits(self) -> list[tuple[pa.Schema, str]]:
        """Rows that the table does not take, and a word of the error."""
        other = pa.schema([*SCHEMA, pa.field("more", pa.int32())])
        return [(other, "more"), (pa.schema([pa.field("k", pa.string()), *list(SCHEMA)[1:]]), "'k'")]

    def table(self, schema: pa.Schema = SCHEMA, upsert: bool = False, **options: str) -> Table:
        return table_of(parse_table_options(self.format, {**self.options(upsert), **options}), schema)


class PostgresCase(Case):
    format = "postgresql"
    ordered = True

    def create(self, columns: Mapping[str, str] | None = None) -> None:
        types = columns or {"k": "bigint", "v": "bigint", "name": "text"}
        listed = ", ".join(f"{name} {type_}" for name, type_ in types.items())
        with psycopg.connect(self.place["url"], autocommit=True) as connection:
            connection.execute(f"create table {self.place['table']} ({listed})")
            if self.place["upsert"]:
                connection.execute(f"create unique index on {self.place['table']} (k)")

    def options(self, upsert: bool) -> dict[str, str]:
        keys = {"keyColumns": "k"} if upsert else {}
        return {
            "url": self.place["url"],
            "table": self.place["table"],
            **keys,
            "epochTable": f"{self.place['table']}_e",
        }

    def read(self) -> list[Row]:
        with psycopg.connect(self.place["url"]) as connection:
            return connection.execute(f"select * from {self.place['table']}").fetchall()


class DbapiCase(Case):
    """Any database: its module, and the arguments of its connections, are in the place."""

    format = "dbapi"
    ordered = True

    def _connection(self) -> Any:
        return importlib.import_module(self.place["module"]).connect(**json.loads(self.place["connect"]))

    def create(self, columns: Mapping[str, str] | None = None) -> None:
        with closing(self._connection()) as connection:
            connection.cursor().execute(f"create table {self.place['table']} (k bigint, v bigint, name varchar(99))")
            connection.commit()

    def options(self, upsert: bool) -> dict[str, str]:
        keys = {"keyColumns": "k"} if upsert else {}
        given = {name: self.place[name] for name in ("module", "connect", "table")}
        return {**given, "epochTable": f"{self.place['table']}_e", **keys}

    def read(self) -> list[Row]:
        with closing(self._connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"select * from {self.place['table']}")
            return [tuple(row) for row in cursor.fetchall()]

    def misfits(self) -> list[tuple[pa.Schema, str]]:
        return super().misfits()[:1]  # types are the database's affair


class KafkaCase(Case):
    format = "kafka"
    ordered = True

    def create(self, columns: Mapping[str, str] | None = None) -> None:
        partitions = 2 if self.place["upsert"] else 1
        made = NewTopic(self.place["table"], partitions)
        admin = AdminClient({"bootstrap.servers": self.place["bootstrap"]})
        admin.create_topics([made])[made.topic].result(30)

    def options(self, upsert: bool) -> dict[str, str]:
        topic, keys = self.place["table"], {"keyColumns": "k"} if upsert else {}
        servers = {"kafka.bootstrap.servers": self.place["bootstrap"]}
        return {**servers, "topic": topic, "epochTopic": f"{topic}-epochs", **keys}

    def read(self) -> list[Row]:
        last: dict[bytes, Row] = {}
        rows = []
        for message in self.messages():
            if message.value() is None:  # a tombstone
                last.pop(message.key(), None)
                continue
            value = json.loads(message.value())
            rows.append((value["k"], value["v"], value["name"]))
            last[message.key()] = rows[-1]
        return list(last.values()) if self.place["upsert"] else rows

    def values(self) -> list[bytes]:
        return [message.value() for message in self.messages()]

    def messages(self) -> list[Message]:
        """Those that a reader of committed records finds, each partition in its order."""
        topic, settings = self.place["table"], {"bootstrap.servers": self.place["bootstrap"], "group.id": "reader"}
        consumer = Consumer(
            {**settings, "isolation.level": "read_committed", "enable.partition.eof": "true", "fetch.wait.max.ms": "10"}
        )
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        found = []
        for partition in partitions:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found.append(message)
            assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
        consumer.close()
        return found

    def misfits(self) -> list[tuple[pa.Schema, str]]:
        value = pa.schema([("k", pa.int64()), ("value", pa.string())])
        return [(value, "'k'"), (pa.schema([("key", pa.int64()), ("v", pa.int64())]), "'key'")]


class DeltaCase(Case):
    format = "delta"

    def create(self, columns: Mapping[str, str] | None = None) -> None:
        DeltaTable.create(self.place["path"], SCHEMA)

    def options(self, upsert: bool) -> dict[str, str]:
        return {"path": self.place["path"], **({"keyColumns": "k"} if upsert else {})}

    def read(self) -> list[Row]:
        found = DeltaTable(self.place["path"]).to_pyarrow_table()
        return list(zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True))


class IcebergCase(Case):
    format = "iceberg"

    def create(self, columns: Mapping[str, str] | None = None) -> None:
        Path(self.place["path"]).mkdir()
        catalog = self.catalog()
        catalog.create_namespace("shop")
        catalog.create_table("shop.rows", SCHEMA)

    def options(self, upsert: bool) -> dict[str, str]:
        settings = {f"catalog.{name}": value for name, value in self._settings().items()}
        return {"table": "shop.rows", "catalog": "lake", **settings, **({"keyColumns": "k"} if upsert else {})}

    def read(self) -> list[Row]:
        found = self.catalog().load_table("shop.rows").scan().to_arrow()
        return list(zip(*(found.column(name).to_pylist() for name in SCHEMA.names), strict=True))

    def _settings(self) -> dict[str, str]:
        path = self.place["path"]
        return {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}

    def catalog(self) -> Catalog:
        return load_catalog("lake", **self._settings())


CASES: Mapping[str, type[Case]] = {
    "iceberg": IcebergCase,
    "delta": DeltaCase,
    "postgresql": PostgresCase,
    "dbapi": DbapiCase,
    "kafka": KafkaCase,
}
