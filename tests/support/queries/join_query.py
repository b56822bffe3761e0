"""Joins of two scripted streams through the public interface, and what nested loops make of the same rows.

Rows come out of order, some late, some without a time; keys are of several types, and some are null.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tailrace as tr
from support.models.join import Answer, JoinOracle, JoinRow
from tailrace.ids import Micros
from tailrace.operators.join.spec import LEFT, RIGHT, How, JoinKind, JoinSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of
from tailrace.types import TIMESTAMP, DataType, Field

SECOND = 1_000_000
KEYS = ("site", "n", "open")
STAMP = pa.timestamp("us", "UTC")
_KEY_FIELDS = [("site", pa.string()), ("n", pa.decimal128(20, 1)), ("open", pa.bool_())]
SCHEMAS = (
    pa.schema([*_KEY_FIELDS, ("lt", STAMP), ("a", pa.string()), ("ends", STAMP)]),
    pa.schema([*_KEY_FIELDS, ("rt", STAMP), ("b", pa.int64()), ("until", STAMP)]),
)
_SPEC: dict[str, Any] = {
    "name": "oracle",
    "keys": (
        Field("site", DataType("string")),
        Field("n", DataType("decimal(20,1)")),
        Field("open", DataType("boolean")),
    ),
    "left": (Field("lt", TIMESTAMP), Field("a", DataType("string")), Field("ends", TIMESTAMP)),
    "right": (Field("rt", TIMESTAMP), Field("b", DataType("bigint")), Field("until", TIMESTAMP)),
    "shards": 1,
}


@dataclass(frozen=True)
class Kind:
    """``requested``: arguments of ``join``. ``meant``: the same for the oracle. ``delays``: None without watermarks."""

    requested: Mapping[str, Any]
    meant: Mapping[str, Any]
    delays: tuple[int, int] | None = (3 * SECOND, 5 * SECOND)

    def spec(self, how: str) -> JoinSpec:
        return JoinSpec(how=How(how), watermarked=self.delays is not None, **_SPEC, **self.meant)


def _seconds(count: int) -> Micros:
    return Micros(count * SECOND)


KINDS = {
    "interval": Kind(
        {"within": ("-4 seconds", "6 seconds")},
        {"kind": JoinKind.INTERVAL, "lower": _seconds(-4), "upper": _seconds(6)},
    ),
    "interval without end": Kind(
        {"within": ("2 seconds", None), "ttl": "9 seconds"},
        {"kind": JoinKind.INTERVAL, "lower": _seconds(2), "ttl": _seconds(9)},
    ),
    "tumbling": Kind(
        {"window": tr.window("lt", "10 seconds")},
        {"kind": JoinKind.WINDOW, "window": TimeWindowSpec(_seconds(10), _seconds(10), Micros(0))},
    ),
    "sliding": Kind(
        {"window": tr.window("rt", "10 seconds", "5 seconds", "1 second")},
        {"kind": JoinKind.WINDOW, "window": TimeWindowSpec(_seconds(10), _seconds(5), _seconds(1))},
    ),
    "valid left": Kind({"validTo": "ends"}, {"kind": JoinKind.CONTINUOUS, "valid_to": "ends", "valid_side": LEFT}),
    "valid right": Kind({"validTo": "until"}, {"kind": JoinKind.CONTINUOUS, "valid_to": "until", "valid_side": RIGHT}),
    "ttl": Kind({"ttl": "8 seconds"}, {"kind": JoinKind.TTL, "ttl": _seconds(8)}),
    "keys alone": Kind({}, {"kind": JoinKind.TTL}, None),
}


def batches(seed: int, epochs: int, rows: int = 14) -> tuple[tuple[pa.Table, ...], tuple[pa.Table, ...]]:
    """Rows of both sides by epoch, from the seed alone."""
    rng = random.Random(seed)
    used = 0
    sides: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    for epoch in range(epochs):
        for side, made in enumerate(sides):
            count = rng.choice([0, rows // 2, rows, rows])
            drawn = [_row(rng, side, 1_700_000_000 + 4 * epoch, used + number) for number in range(count)]
            used += count
            columns = zip(*drawn, strict=True) if drawn else [[] for _ in SCHEMAS[side]]
            arrays = [pa.array(column, each.type) for column, each in zip(columns, SCHEMAS[side], strict=True)]
            made.append(pa.table(arrays, schema=SCHEMAS[side]))
    return tuple(sides[0]), tuple(sides[1])


def draw(epochs: int, rows: int, enough: Callable[..., bool]) -> tuple[tuple[pa.Table, ...], tuple[pa.Table, ...]]:
    """Rows from a fresh seed, which is printed, of which a test can learn ``enough``."""
    while True:
        seed = random.randrange(2**32)
        made = batches(seed, epochs, rows)
        if enough(*made):
            print(f"seed {seed}")
            return made


def _row(rng: random.Random, side: int, now: int, number: int) -> tuple[Any, ...]:
    # Most within the delays, some late, few so early that they move the watermark far.
    behind = rng.choice([*range(8), *range(8), 20, -6])
    time = (now - behind) * SECOND + rng.choice([0, 0, 1, 500_000])
    until = rng.choice([None, time, time - SECOND, *(time + rng.randrange(20 * SECOND) for _ in range(5))])
    key = (rng.choice([None, "", "ä", "ä"]), rng.choice([Decimal("0.5"), Decimal("-12345678901234567.5")]), True)
    if rng.random() < 0.1:
        key = (key[0], None, rng.choice([None, False]))
    return (*key, None if rng.random() < 0.05 else time, f"left {number}" if side == LEFT else number, until)


@dataclass
class Expected:
    """What the oracle says, by epoch."""

    epochs: list[Counter[str]]
    answers: list[list[Answer]]
    watermarks: list[int]
    """Of each epoch's end, and before the first."""
    late: int
    timeless: int


def expected(
    kind: Kind,
    how: str,
    lefts: Sequence[pa.Table],
    rights: Sequence[pa.Table],
    timed: bool,
    rule: str = "tailrace",
) -> Expected:
    """``timed``: rows show their event time. ``rule``: of the watermark. Sides may end at different epochs."""
    spec = kind.spec(how)
    oracle = JoinOracle(spec)
    before = oracle.watermarks[0]
    seen = [before, before]
    if rule == "spark":
        oracle.watermarks[0] = 0
    expected_rows = Expected([], [], oracle.watermarks, 0, 0)
    for epoch in range(max(len(lefts), len(rights))):
        rows = []
        earlier = list(seen)
        for side, tables in enumerate((lefts, rights)):
            for row in rows_of(tables[epoch]) if epoch < len(tables) else ():
                key, values = tuple(row.values())[:3], tuple(row.values())[3:]
                if kind.delays is None:
                    rows.append(JoinRow(side, key, 0, values, None, epoch))
                elif values[0] is None:
                    expected_rows.timeless += 1
                else:
                    late = oracle.late(values[0], side)
                    expected_rows.late += late
                    seen[side] = max(seen[side], values[0])
                    if not late:
                        rows.append(JoinRow(side, key, values[0], values, values[2], epoch))
        watermark = oracle.watermarks[-1]
        epoch_config = earlier if rule == "spark" else seen
        if kind.delays is not None and before not in epoch_config:
            marks = [time - delay for time, delay in zip(epoch_config, kind.delays, strict=True)]
            watermark = max(watermark, min(marks) // 1000 * 1000 if rule == "spark" else min(marks))
        answers = oracle.epoch(rows, watermark)
        expected_rows.answers.append(answers)
        expected_rows.epochs.append(Counter(_shown(spec, answer, timed) for answer in answers))
    return expected_rows


def _shown(spec: JoinSpec, answer: Answer, timed: bool) -> str:
    cells: list[Any] = []
    if spec.window is not None:
        assert answer.window is not None
        cells.append((answer.window, answer.window + spec.window.size))
    cells += answer.cells(spec)
    return repr(tuple([*cells, answer.time] if timed else cells))


@dataclass
class JoinRun:
    """Two scripted streams in one folder, and what queries over them gave."""

    spark: SparkSession
    path: Path
    fed: tuple[list[pa.Table], list[pa.Table]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self.sources = tuple(
            ScriptedSource(self.path / name, schema) for name, schema in zip(("left", "right"), SCHEMAS, strict=True)
        )

    def feed(self, lefts: Sequence[pa.Table], rights: Sequence[pa.Table]) -> None:
        for source, fed, tables in zip(self.sources, self.fed, (lefts, rights), strict=True):
            source.add(tables)
            fed.extend(tables)

    def stream(self, kind: Kind, how: str, **more: Any) -> Any:
        return join_stream(self.sources, self.spark, kind, how, **more)


def join_stream(sources: Sequence[ScriptedSource], spark: SparkSession, kind: Kind, how: str, **more: Any) -> Any:
    """The join in the user's words."""
    left, right = (tr.stream(source.stream(spark)) for source in sources)
    if kind.delays is not None:
        left, right = (
            side.withWatermark(time, f"{delay} microseconds")
            for side, time, delay in zip((left, right), ("lt", "rt"), kind.delays, strict=True)
        )
    return left.join(right, list(KEYS), how, **kind.requested, **more)


@dataclass
class Kept:
    """What a query gave by epoch, and its progress. A replayed epoch must give the same again."""

    epochs: dict[int, Counter[str]] = field(default_factory=dict)
    rows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    progress: list[Any] = field(default_factory=list)
    seen_twice: set[int] = field(default_factory=set)

    def save(self, batch: DataFrame, epoch: int) -> None:
        rows = rows_of(batch.toArrow())
        shown = Counter(repr(tuple(row.values())) for row in rows)
        if epoch in self.epochs:
            self.seen_twice.add(epoch)
            assert shown == self.epochs[epoch], f"epoch {epoch} came again with other rows"
        self.epochs[epoch], self.rows[epoch] = shown, rows

    def check(self, wanted: Sequence[Counter[str]]) -> None:
        assert sorted(self.epochs) == list(range(len(wanted)))
        for epoch, rows in enumerate(wanted):
            found = self.epochs[epoch]
            assert found == rows, f"epoch {epoch}: missing {rows - found}, too many {found - rows}"


def start(stream: Any, checkpoint: Path, kept: Kept, mode: str = "append", now: bool = True, **options: str) -> Any:
    writer = stream.writeStream.outputMode(mode).foreachBatch(kept.save)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer).start()


def run(stream: Any, checkpoint: Path, kept: Kept | None = None, mode: str = "append", **options: str) -> Kept:
    """To the end of what is available."""
    kept = kept or Kept()
    query = start(stream, checkpoint, kept, mode, **options)
    try:
        query.awaitTermination()
        kept.progress += query.recentProgress
    finally:
        query.stop()
    return kept
