"""A plain PySpark query, run by Spark as a stream and by ``tailrace.writeStream``: the same rows in the same epochs.

Both read scripted batches, epoch by epoch. Tailrace follows Spark's rule for watermarks, so that windows close in the
epochs in which Spark closes them; Spark makes no epochs without data (``support.session``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import same

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("text", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("finite", pa.float64()),
        ("e", pa.decimal128(12, 2)),
        ("wide", pa.decimal128(30, 4)),
        ("b", pa.bool_()),
        ("raw", pa.binary()),
        ("unique", pa.int64()),
    ]
)
DAY = timedelta(days=1)
START = datetime(2026, 3, 28, 20, tzinfo=UTC)  # clocks go forward in Europe in the night after it
Rows = list[tuple[Any, ...]]


def batches(
    rng: random.Random, count: int = 4, rows: int = 40, step: timedelta = timedelta(seconds=8)
) -> list[pa.Table]:
    """Batches whose times go on by ``step``, some of them late; with nulls in every column, and other hard values."""
    unique = iter(rng.sample(range(1 << 40), count * rows))

    def row(epoch: int) -> dict[str, Any]:
        at = START + step * (epoch + rng.uniform(-1, 1)) - (4 * step if rng.random() < 0.1 else step * 0)
        values = {
            "ts": at,
            "local": at.replace(tzinfo=None),
            "day": date(2026, 3, rng.randint(1, 4)),
            "text": rng.choice(["", "a", "A", "ab", "ß", "longer than eight bytes"]),
            "i": rng.randint(-5, 5),
            "l": rng.randint(-(1 << 40), 1 << 40),
            "d": rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf, *(rng.randint(-40, 40) / 8 for _ in range(9))]),
            "finite": rng.randint(-40, 40) / 8,
            "e": Decimal(rng.randint(-500, 500)).scaleb(-2),
            "wide": Decimal(rng.randint(-(10**29), 10**29)).scaleb(-4),
            "b": rng.random() < 0.7,
            "raw": rng.choice([b"", b"\x00", b"\xff\x00"]),
        }
        kept = {name: None if rng.random() < 0.1 else value for name, value in values.items()}
        return {**kept, "unique": next(unique)}

    return [pa.Table.from_pylist([row(epoch) for _ in range(rows)], SCHEMA) for epoch in range(count)]


def closing(step: timedelta = timedelta(days=30), count: int = 2) -> list[pa.Table]:
    """Batches of one row each, with the text ``end``, behind which nothing waits any more."""

    def row(number: int) -> dict[str, Any]:
        at = START + step * (1 + number)
        known = {"ts": at, "local": at.replace(tzinfo=None), "text": "end", "i": 0, "l": 1, "unique": -number}
        return {**dict.fromkeys(SCHEMA.names), **known}

    return [pa.Table.from_pylist([row(number)], SCHEMA) for number in range(count)]


class PlainQuery:
    """``ask``: from the stream to what is written. ``spark_asks``: what Spark runs for it, by default the same."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        tables: Sequence[pa.Table],
        ask: Callable[[DataFrame], DataFrame],
        mode: str = "append",
        spark_asks: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        source = ScriptedSource(path / "in", tables[0].schema)
        source.add(tables)
        self.rows = source.stream(spark)
        self.frame = ask(self.rows)
        self.sparks = self.frame if spark_asks is None else spark_asks(self.rows)
        self.path, self.mode = path, mode

    def check(self) -> int:
        """Both give the same rows in the same epochs; how many rows that were."""
        ours, theirs = self.on_tailrace(), self.on_spark()
        assert sorted(ours) == sorted(theirs)
        for epoch, rows in theirs.items():
            assert rows[0] == ours[epoch][0]
            missing, more = without(rows, ours[epoch]), without(ours[epoch], rows)
            assert not missing and not more, f"epoch {epoch}: Spark alone {missing[:4]}, Tailrace alone {more[:4]}"
        return sum(map(len, theirs.values()))

    def check_in_the_end(self) -> int:
        """Both give the same rows, in whatever epochs; how many rows that were."""
        ours, theirs = (
            [row for rows in found.values() for row in rows[1:]] for found in (self.on_tailrace(), self.on_spark())
        )
        missing, more = without(theirs, ours), without(ours, theirs)
        assert not missing and not more, f"Spark alone {missing[:4]}, Tailrace alone {more[:4]}"
        return len(theirs)

    def on_tailrace(self, **options: str) -> dict[int, Rows]:
        writer = tr.writeStream(self.frame, fallback=False).options(**{"watermark": "spark", **options})
        return self._run(writer, "tailrace")

    def on_spark(self) -> dict[int, Rows]:
        return self._run(self.sparks.writeStream, "spark")

    def _run(self, writer: Any, name: str) -> dict[int, Rows]:
        found: dict[int, Rows] = {}

        def save(batch: DataFrame, epoch: int) -> None:
            found[epoch] = rows_of(batch)

        writer = writer.outputMode(self.mode).foreachBatch(save)
        query = writer.option("checkpointLocation", str(self.path / name)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return found


class OwnQuery(PlainQuery):
    """A query in Tailrace's own API, and one of Spark's that says the same. ``ours``: by default in the same words."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        tables: Sequence[pa.Table],
        ask: Callable[[Any], Any],
        mode: str = "append",
        ours: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(spark, path, tables, ask, mode)
        self.stream = (ours or ask)(tr.stream(self.rows))

    def on_tailrace(self, **options: str) -> dict[int, Rows]:
        return self._run(self.stream.writeStream.options(**{"watermark": "spark", **options}), "tailrace")


def rows_of(frame: DataFrame) -> Rows:
    """Columns' names and types first, then the rows. Names may come twice."""
    named = frame.toDF(*(f"{number} {name}" for number, name in enumerate(frame.columns)))
    table = named.toArrow()
    head = tuple(f"{field.name} {field.type}".replace(" not null", "") for field in table.schema)
    return [head, *(tuple(_plain(value) for value in row.values()) for row in table.to_pylist())]


def _plain(value: Any) -> Any:
    """Lists as bags, structs as tuples."""
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=repr)
    return tuple(map(_plain, value.values())) if isinstance(value, dict) else value


def without(rows: Rows, others: Rows) -> Rows:
    """The rows that are not among the others."""
    left = list(others)
    found = []
    for row in rows:
        match = next(
            (
                n
                for n, other in enumerate(left)
                if all(same(one, two, 100.0) for one, two in zip(row, other, strict=True))
            ),
            None,
        )
        if match is None:
            found.append(row)
        else:
            del left[match]
    return found
