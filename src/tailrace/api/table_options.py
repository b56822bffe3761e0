"""The options of sinks that are tables or topics, declared once for each format: name, values, default, one sentence.

A format's options that go to its client library unread have a prefix, as Spark's Kafka options do. Values that may hold
a secret are in no ``repr``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tailrace.api.columns import closest
from tailrace.api.option_values import Choice, Duration, Names, Text, declared, option, parsed
from tailrace.api.relations import OutputMode
from tailrace.errors import AnalysisError
from tailrace.ids import Micros


class WriteMode(StrEnum):
    """What a row does in the table."""

    APPEND = "append"  # a row more
    UPSERT = "upsert"  # replaces the row with its key, or is a row more
    UPDATE = "update"  # replaces the row with its key, where there is one


def default_mode(key_columns: tuple[str, ...]) -> WriteMode:
    return WriteMode.UPSERT if key_columns else WriteMode.APPEND


@dataclass(frozen=True)
class TableOptions:
    """What all of them have."""

    timeout: Micros = option(
        "sinkTimeout",
        Duration(zero_ok=True),
        Micros(300_000_000),
        "How long a sink that cannot be reached is tried again before the query ends.",
    )

    @property
    def place(self) -> str:
        """What ``explain`` calls it. No secrets."""
        return ""

    def refusal(self, mode: OutputMode) -> str | None:
        """Why rows of this output mode do not belong there, with what to do; None where they do."""
        return None


@dataclass(frozen=True)
class KeyedOptions(TableOptions):
    """Of tables in which a row may replace another one."""

    write_mode: WriteMode | None = option(
        "writeMode",
        Choice(WriteMode),
        None,
        "What a row does: `upsert` where keyColumns is given, else `append`.",
    )
    key_columns: tuple[str, ...] = option(
        "keyColumns", Names(), (), "The columns by which rows are found in the table, as in 'window_start, auction'."
    )

    def refusal(self, mode: OutputMode) -> str | None:
        chosen = self.write_mode or default_mode(self.key_columns)
        if mode is OutputMode.APPEND or chosen is not WriteMode.APPEND:
            return None
        if mode is OutputMode.UPDATE and self.write_mode is not None:
            return None  # every version of a row, as the user says
        return (
            f"outputMode {mode.value!r} gives rows that replace earlier ones: name the columns by which they do, "
            f".option('keyColumns', 'window_start, auction')"
        )


@dataclass(frozen=True)
class PostgresOptions(KeyedOptions):
    url: str = option(
        "url",
        Text(),
        None,
        "The database: `postgresql://user@host:5432/database`. A password may also stand in the environment "
        "(`PGPASSWORD`) or in a password file.",
        secret=True,
    )
    table: str = option("table", Text(), None, "The table, with its schema where it has one: `public.counts`.")
    epoch_table: str = option(
        "epochTable", Text(), "tailrace_epochs", "The table with each query's run and epoch; made where there is none."
    )

    @property
    def place(self) -> str:
        return self.table


@dataclass(frozen=True)
class DbapiOptions(KeyedOptions):
    module: str = option("module", Text(), None, "A database module (PEP 249) by its name: `sqlite3`, `psycopg`.")
    connect: str = option(
        "connect",
        Text(),
        None,
        "A JSON object with the arguments of the module's `connect()`.",
        secret=True,
    )
    table: str = option("table", Text(), None, "The table, with its schema where it has one.")
    epoch_table: str = option(
        "epochTable", Text(), "tailrace_epochs", "The table with each query's run and epoch; made where there is none."
    )

    @property
    def place(self) -> str:
        return f"{self.table} by {self.module}"


@dataclass(frozen=True)
class DeltaOptions(KeyedOptions):
    path: str = option(
        "path", Text(), None, "The table's folder, or its URI in an object store. Made where there is none."
    )
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the object store's client, by their names with ``storage.`` before them."""

    @property
    def place(self) -> str:
        return self.path

    def refusal(self, mode: OutputMode) -> str | None:
        return _no_update(self.write_mode) or super().refusal(mode)


@dataclass(frozen=True)
class IcebergOptions(KeyedOptions):
    table: str = option("table", Text(), None, "The table in its catalogue: `shop.counts`. Made where there is none.")
    catalog: str = option(
        "catalog", Text(), "default", "The catalogue's name, as pyiceberg's configuration file has it."
    )
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The catalogue's settings, by the names of pyiceberg with ``catalog.`` before them."""

    @property
    def place(self) -> str:
        return self.table

    def refusal(self, mode: OutputMode) -> str | None:
        return _no_update(self.write_mode) or super().refusal(mode)


_DELTA_PATH = re.compile(r"delta\.`(.+)`")
"""What a Delta table without a catalogue is called in Spark's SQL."""


def _no_update(mode: WriteMode | None) -> str | None:
    return "writeMode 'update' is for databases: use 'upsert', or 'append'" if mode is WriteMode.UPDATE else None


class Delivery(StrEnum):
    """How often readers may see a row."""

    EXACTLY_ONCE = "exactly-once"  # by transactions, for readers of committed records
    AT_LEAST_ONCE = "at-least-once"  # acknowledged, and again where an epoch was cut short


@dataclass(frozen=True)
class KafkaOptions(TableOptions):
    servers: str = option("kafka.bootstrap.servers", Text(), None, "The brokers, as in Spark: `host:9092,host:9092`.")
    topic: str = option("topic", Text(), None, "The topic. It is not made.")
    delivery: Delivery = option(
        "delivery",
        Choice(Delivery),
        Delivery.EXACTLY_ONCE,
        "Whether an epoch is a transaction, or may be there twice after a crash.",
    )
    key_columns: tuple[str, ...] = option(
        "keyColumns", Names(), (), "The columns that make a message's key, where no column is named `key`."
    )
    epoch_topic: str = option(
        "epochTopic",
        Text(),
        "tailrace-epochs",
        "The compacted topic with each query's run and epoch; made where there is none.",
    )
    client: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the client library, by their names with ``kafka.`` before them."""

    @property
    def place(self) -> str:
        return self.topic


TABLE_FORMATS: Mapping[str, TableOptions] = {
    "postgresql": PostgresOptions(),
    "dbapi": DbapiOptions(),
    "kafka": KafkaOptions(),
    "delta": DeltaOptions(),
    "iceberg": IcebergOptions(),
}
"""By format: the options with their defaults."""


def option_of_table(name: str, table: str) -> tuple[str, str] | None:
    """The option that means a table of a format by its name, and its value; None where it has none."""
    if name == "delta":
        path = _DELTA_PATH.fullmatch(table)
        return None if path is None else ("path", path.group(1))
    return ("table", table) if hasattr(TABLE_FORMATS.get(name), "table") else None


def parse_table_options(name: str, given: Mapping[str, str]) -> TableOptions:
    """The options of a format that is in ``TABLE_FORMATS``, checked."""
    default = TABLE_FORMATS[name]
    names = {declaration.name.lower(): declaration.name for declaration, _ in declared(default)}
    ours: dict[str, str] = {}
    prefix, settings = _CLIENT.get(name, (None, ""))
    client: list[tuple[str, str]] = []
    for key, value in given.items():
        if prefix is not None and key.lower().startswith(prefix) and key.lower() not in names:
            client.append((key, value))
            continue
        if key.lower() not in names:
            near = closest(key, names.values())
            raise AnalysisError(
                f"format {name!r} has no option {key!r}"
                + (f"; did you mean {near!r}?" if near else "")
                + f" It has: {', '.join(names.values())}"
            )
        ours[names[key.lower()]] = value
    options = parsed(default, ours)
    if client:
        options = replace(options, **{settings: tuple(client)})  # type: ignore[arg-type]  # by name
    for declaration, value in declared(options):
        if value is None and declaration.name in _NEEDED.get(name, ()):
            raise AnalysisError(f"format {name!r} needs .option({declaration.name!r}, ...): {declaration.meaning}")
    return options


_NEEDED = {
    "postgresql": ("url", "table"),
    "dbapi": ("module", "connect", "table"),
    "kafka": ("kafka.bootstrap.servers", "topic"),
    "delta": ("path",),
    "iceberg": ("table",),
}
_CLIENT = {"kafka": ("kafka.", "client"), "delta": ("storage.", "storage"), "iceberg": ("catalog.", "settings")}
"""By format: how the names of its client's settings begin, and the field that has them."""
