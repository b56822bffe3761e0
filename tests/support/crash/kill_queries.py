"""The queries that are run while their processes are killed: one for each store, one of each kind that differs in it.

All data comes from a seed: small batches with late rows and null keys, and for queries that shall not fit into their
memory some hundred rows with long keys. Each case knows its oracle.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.crash.kill_processor import OUTPUT, QuietAuctions, undisturbed
from support.queries import join_query as join_case
from support.queries.engines import tailrace_stream
from support.queries.file_sink import FileSink, written
from support.queries.spark_epochs import as_run
from tailrace.testing import Aggregate, Question, ScriptedSource, Windows, describe, differences, expected
from tailrace.testing.compare import rows_of
from tailrace.testing.lateness import judge

SECOND = 1_000_000
STEP = 4
"""Seconds of event time from one batch to the next."""
DELAY = 3 * SECOND
SCHEMA = pa.schema(
    [("auction", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("price", pa.decimal128(12, 2)),
     ("score", pa.float64())]
)  # fmt: skip
KEYS = ("auction", "name")
TINY = "1MB"
FAILED = "failed"
"""The file beside the queries' folders that says which of them failed, and why."""
_SCALES = {"score": 1000.0, "spread": 1000.0}


@dataclass(frozen=True)
class EpochVerdict:
    """What a sink holds of one epoch, compared with the oracle."""

    epoch: int
    rows: int
    """The oracle's."""
    lost: int
    doubled: int
    """Rows that are there twice, or should not be there at all."""
    fault: str
    """In words, a wrong value too; empty where all is right."""


class KillCase(ABC):
    mode = "append"
    spills = False
    """Whether state goes to disk, given so little memory."""

    @abstractmethod
    def feed(self, root: Path, seed: int, epochs: int) -> None:
        """Write all that the query reads, epoch by epoch."""

    @abstractmethod
    def stream(self, root: Path, spark: SparkSession) -> Any:
        """The query in the user's words, up to ``writeStream``."""

    def written(self, writer: Any, root: Path) -> Any:
        """The writer, with all but its first sink."""
        return writer

    @abstractmethod
    def compare(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> Iterator[EpochVerdict]:
        """Every epoch of the sink with the oracle's."""

    def check(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> int:
        """In each epoch the sink holds the oracle's rows; how many these are."""
        rows = 0
        for verdict in self.compare(spark, root, seed, epochs):
            assert not verdict.fault, f"{root.name}, epoch {verdict.epoch}: {verdict.fault}"
            rows += verdict.rows
        return rows


def _verdict(root: Path, epoch: int, wanted: Counter[Any], shown: Callable[[dict[str, Any]], Any]) -> EpochVerdict:
    """``shown``: of a row of the sink, what ``wanted`` counts."""
    table = written(root / "out", epoch)
    found = Counter(shown(row) for row in rows_of(table)) if table is not None else Counter()
    lost, doubled = wanted - found, found - wanted
    fault = f"missing {lost}, too many {doubled}" if lost or doubled else ""
    if table is None:
        fault = "the sink has nothing"
    return EpochVerdict(epoch, wanted.total(), lost.total(), doubled.total(), fault)


def batches(seed: int, epochs: int, wide: bool = False) -> tuple[pa.Table, ...]:
    rng = random.Random(seed)
    sizes = [700] if wide else [0, 40, 200, 200, 200]
    return tuple(_batch(rng, 1_700_000_000 + epoch * STEP, rng.choice(sizes), wide) for epoch in range(epochs))


def _batch(rng: random.Random, now: int, rows: int, wide: bool) -> pa.Table:
    names = [None, "", "ä", "long name " * 4]
    if wide:
        names = [f"{n} {'x' * 250}" for n in range(40)]
    keys = range(now % 5000, now % 5000 + 30) if wide else range(20)  # wide: keys come and go
    columns: list[list[object]] = [
        [rng.choice([None, *keys]) for _ in range(rows)],
        [rng.choice(names) for _ in range(rows)],
        [(now - rng.randrange(10)) * SECOND + rng.randrange(SECOND) for _ in range(rows)],
        [Decimal(rng.randrange(10**12)).scaleb(-2) for _ in range(rows)],
        [rng.gauss(100, 15) for _ in range(rows)],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@dataclass(frozen=True)
class ScriptedQuery(KillCase):
    """One aggregation."""

    question: Question
    spills: bool = False

    @property
    def mode(self) -> str:  # type: ignore[override]
        return self.question.output_mode

    def feed(self, root: Path, seed: int, epochs: int) -> None:
        ScriptedSource(root / "in", SCHEMA).add(batches(seed, epochs, self.spills))

    def stream(self, root: Path, spark: SparkSession) -> Any:
        return tailrace_stream(ScriptedSource(root / "in", SCHEMA).stream(spark), self.question)

    def compare(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> Iterator[EpochVerdict]:
        window = self.question.window_column
        group = (*((window,) if window else ()), *self.question.keys)

        def key(row: dict[str, Any]) -> tuple[Any, ...]:
            return tuple(row[name] for name in group)

        for want in expected(spark, self.question, as_run(batches(seed, epochs, self.spills), root / "check")):
            verdict = _verdict(root, want.epoch, Counter(map(key, rows_of(want.rows))), key)
            table = written(root / "out", want.epoch)
            found = differences(table, want.rows, group, _SCALES) if table is not None else []
            yield replace(verdict, fault=describe(found)) if found else verdict


@dataclass(frozen=True)
class LateRows(ScriptedQuery):
    """An aggregation whose late rows go to a sink of their own."""

    def written(self, writer: Any, root: Path) -> Any:
        return writer.lateRows(FileSink(root / "late").save)

    def check(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> int:
        rows = super().check(spark, root, seed, epochs)
        for epoch, want in enumerate(self._late(as_run(batches(seed, epochs), root / "check"))):
            got = written(root / "late", epoch)
            assert (got is not None) == bool(len(want)), f"epoch {epoch} has {len(want)} late rows"
            if got is not None:
                assert got["tailrace_reason"].unique().to_pylist() == ["late"]
                order = [("ts", "ascending"), ("score", "ascending")]
                both = [table.select(SCHEMA.names).sort_by(order).to_pylist() for table in (got, want)]
                assert both[0] == both[1], f"epoch {epoch}"
        left = root / "check" / "tailrace" / "late"
        assert not left.exists() or list(left.iterdir()) == [], "late rows are left in the state"
        return rows

    def _late(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """By epoch, the rows that count in no window."""
        times = [table["ts"].cast(pa.int64()).to_pylist() for table in tables]
        counted = {(each.epoch, each.row) for each in judge(self.question, times).contributions}
        return [
            table.filter(pa.array([(epoch, row) not in counted for row in range(len(table))], pa.bool_()))
            for epoch, table in enumerate(tables)
        ]


@dataclass(frozen=True)
class Chained(KillCase):
    """Counts of a window by key, and of these a sum and a median by longer windows: two operators, two stores.

    ``hop``: whether Spark works on the counts in between.
    """

    first: Question
    size: int
    hop: bool = False

    def feed(self, root: Path, seed: int, epochs: int) -> None:
        ScriptedSource(root / "in", SCHEMA).add(batches(seed, epochs))

    def stream(self, root: Path, spark: SparkSession) -> Any:
        first = tailrace_stream(ScriptedSource(root / "in", SCHEMA).stream(spark), self.first)
        if self.hop:
            first = first.transform(lambda rows: rows.where("bids > 1").withColumn("bids", F.col("bids") * 3))
        longer = first.groupBy(tr.window("window", f"{self.size} microseconds"), "auction")
        return longer.agg(tr.sum("bids").alias("bids"), tr.median("bids").alias("mid"))

    def compare(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> Iterator[EpochVerdict]:
        groups: dict[tuple[int, Any], list[int]] = defaultdict(list)
        for want in expected(spark, self.first, as_run(batches(seed, epochs), root / "check")):
            for row in rows_of(want.rows):
                time = row["window"][1] - 1
                if not self.hop or row["bids"] > 1:
                    groups[time - time % self.size, row["auction"]].append(row["bids"] * (3 if self.hop else 1))
            mark = want.closing_watermark
            closed = [key for key in groups if mark is not None and key[0] + self.size <= mark]
            made = {key: groups.pop(key) for key in closed}
            wanted = Counter((*key, sum(bids), float(median(bids))) for key, bids in made.items())
            yield _verdict(
                root, want.epoch, wanted, lambda row: (row["window"][0], row["auction"], row["bids"], row["mid"])
            )


class Processed(KillCase):
    """A stateful processor with timers in event time."""

    def feed(self, root: Path, seed: int, epochs: int) -> None:
        ScriptedSource(root / "in", SCHEMA).add(batches(seed, epochs))

    def stream(self, root: Path, spark: SparkSession) -> Any:
        bids = tr.stream(ScriptedSource(root / "in", SCHEMA).stream(spark)).withWatermark("ts", f"{DELAY} microseconds")
        return bids.groupBy("auction").transformWithState(QuietAuctions(), OUTPUT, "Append", "EventTime")

    def compare(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> Iterator[EpochVerdict]:
        tables = as_run(batches(seed, epochs), root / "check")
        for epoch, wanted in enumerate(undisturbed(tables, f"{DELAY} microseconds")):
            yield _verdict(root, epoch, wanted, lambda row: tuple(row.values()))


@dataclass(frozen=True)
class Joined(KillCase):
    """A join of two streams."""

    kind: str
    how: str
    names: tuple[str, str] = field(default=("left", "right"))

    def feed(self, root: Path, seed: int, epochs: int) -> None:
        for source, tables in zip(self._sources(root), join_case.batches(seed, epochs), strict=True):
            source.add(tables)

    def stream(self, root: Path, spark: SparkSession) -> Any:
        return join_case.join_stream(self._sources(root), spark, join_case.KINDS[self.kind], self.how)

    def compare(self, spark: SparkSession, root: Path, seed: int, epochs: int) -> Iterator[EpochVerdict]:
        kind = join_case.KINDS[self.kind]
        sides = [
            as_run(tables, root / "check", source) for source, tables in enumerate(join_case.batches(seed, epochs))
        ]
        answer = join_case.expected(kind, self.how, *sides, False)
        for epoch, wanted in enumerate(answer.epochs):
            yield _verdict(root, epoch, wanted, lambda row: repr(tuple(row.values())))

    def _sources(self, root: Path) -> list[ScriptedSource]:
        return [ScriptedSource(root / name, schema) for name, schema in zip(self.names, join_case.SCHEMAS, strict=True)]


_INCREMENTAL = (
    Aggregate("count", None, "bids"),
    Aggregate("sum", "price", "total"),
    Aggregate("max", "price", "top"),
    Aggregate("first", "price", "opening"),
    Aggregate("avg", "score", "score"),
    Aggregate("stddev", "score", "spread"),
)
_WHOLE = (
    Aggregate("quantile", "score", "mid", argument=0.5),
    Aggregate("collect_list", "price", "prices"),
    Aggregate("count_distinct", "price", "distinct"),
)


def _windows(size: int, slide: int, aggregates: tuple[Aggregate, ...]) -> Question:
    return Question(KEYS, aggregates, Windows(size * SECOND, slide * SECOND), "ts", DELAY)


def _sessions(gap: int, aggregates: tuple[Aggregate, ...]) -> Question:
    return Question(KEYS, aggregates, None, "ts", DELAY, session_gap=gap * SECOND)


CASES: Mapping[str, KillCase] = {
    "windows": ScriptedQuery(_windows(10, 4, _INCREMENTAL)),
    # No second chance to be right: each epoch builds on the values of all before it.
    "rolling": ScriptedQuery(Question(KEYS, _INCREMENTAL, None, "ts", DELAY, "update")),
    "cold records": ScriptedQuery(_windows(20, 20, _INCREMENTAL), spills=True),
    "rows by window": ScriptedQuery(_windows(16, 16, _WHOLE), spills=True),
    "sessions": ScriptedQuery(_sessions(3, _INCREMENTAL)),
    "rows by session": ScriptedQuery(_sessions(8, _WHOLE), spills=True),
    "chain": Chained(_windows(4, 4, (Aggregate("count", None, "bids"),)), 20 * SECOND),
    "hop": Chained(_windows(4, 4, (Aggregate("count", None, "bids"),)), 20 * SECOND, hop=True),
    "interval join": Joined("interval", "full_outer"),
    "processor": Processed(),
}
MORE_CASES: Mapping[str, KillCase] = {
    "late rows": LateRows(_windows(2, 2, _INCREMENTAL)),
    **{f"join, {kind}": Joined(kind, "full_outer") for kind in ("sliding", "valid right", "ttl")},
    "semi join": Joined("interval", "left_semi"),
    "windows, complete": ScriptedQuery(replace(_windows(10, 4, _INCREMENTAL), output_mode="complete"), spills=True),
    "sessions, complete": ScriptedQuery(replace(_sessions(3, _INCREMENTAL), output_mode="complete")),
}
"""For the long profile."""
EVERY_CASE = {**CASES, **MORE_CASES}
