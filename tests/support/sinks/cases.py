"""What the behaviour suite of table sinks needs of each: a table in it, and its rows as an outside reader sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

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

    def table(self, schema: pa.Schema = SCHEMA, upsert: bool = False, **options: str) -> Table:
        return table_of(parse_table_options(self.format, {**self.options(upsert), **options}), schema)


class PostgresCase(Case):
    format = "postgresql"

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


CASES = {"postgresql": PostgresCase}
