"""Every aggregate over every kind of window, in memory and on disk, restored, undone and not combined.

A case is an aggregate and its answer in plain Python: of the rows of one group, as dictionaries. Which row is in which
group, and when a group is emitted, is computed row by row, too (``support.models.groups``), so that nothing of the
engine judges itself. A new aggregate needs one line in ``CASES``.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tailrace as tr
from support.bids import SCHEMA, RecordingRuntime
from support.models.groups import SECOND, SHAPES, Rows, micros
from tailrace.api.aggregates import Aggregate
from tailrace.api.options import Options
from tailrace.api.stream import Stream
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.registry import ingest_of, operator_of, spec_from_json
from tailrace.plan.physical import plan_relation
from tailrace.testing.compare import same
from tailrace.types import BIGINT, TIMESTAMP, Field

SHARDS = 2
EPOCHS = 4
COLUMNS = (*SCHEMA, Field("big", BIGINT), Field("until", TIMESTAMP))


@dataclass(frozen=True)
class Case:
    aggregate: Aggregate
    answer: Callable[[Rows], Any]

    @property
    def name(self) -> str:
        return self.aggregate.name


def present(rows: Rows, column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def different(rows: Rows, *columns: str) -> set[tuple[Any, ...]]:
    """Rows of these columns without those that have a null."""
    return {key for key in (tuple(row[column] for column in columns) for row in rows) if None not in key}


def of(column: str, function: Callable[[list[Any]], Any], least: int = 1) -> Callable[[Rows], Any]:
    """A function of the values that are not null; null below ``least`` of them."""

    def answer(rows: Rows) -> Any:
        values = present(rows, column)
        return function(values) if len(values) >= least else None

    return answer


def nulls_first(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,)


def by_order(column: str, order: str, choose: Callable[..., Any]) -> Callable[[Rows], Any]:
    def answer(rows: Rows) -> Any:
        counting = [row for row in rows if row[order] is not None]
        return choose(counting, key=lambda row: (row[order], nulls_first(row[column])))[column] if counting else None

    return answer


def best_by(column: str, order: str, k: int, largest: bool) -> Callable[[Rows], Any]:
    def answer(rows: Rows) -> Any:
        counting = [row for row in rows if row[order] is not None]
        ranked = sorted(counting, key=lambda row: (row[order], nulls_first(row[column])), reverse=largest)
        return [row[column] for row in ranked[:k]]

    return answer


def by_time(column: str, choose: Callable[..., Any]) -> Callable[[Rows], Any]:
    return lambda rows: choose(rows, key=lambda row: (row["ts"], nulls_first(row[column])))[column]


def rank(share: float) -> Callable[[list[Any]], Any]:
    """The first value that so large a share of all is not above."""
    return lambda values: sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def spread_update(states: pa.Table, rows: pa.Table, group: pa.Array) -> pa.Table:
    """The largest and the smallest price, and how many there are; and the last channel by its bytes."""
    frame = pa.table({"group": group, "price": rows["price"], "channel": rows["channel"]})
    found = frame.group_by("group").aggregate(
        [("price", "min"), ("price", "max"), ("price", "count"), ("channel", "max")]
    )
    found = found.sort_by("group")
    return pa.table(
        {"low": found["price_min"], "high": found["price_max"], "n": found["price_count"], "s": found["channel_max"]}
    )


def spread_merge(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table(
        {
            "low": pc.min_element_wise(left["low"], right["low"]),
            "high": pc.max_element_wise(left["high"], right["high"]),
            "n": pc.add(left["n"], right["n"]),
            "s": pc.max_element_wise(left["s"], right["s"]),
        }
    )


def spread_finish(states: pa.Table) -> pa.ChunkedArray:
    numbers = [states[name].cast(pa.string()).fill_null("none") for name in ("low", "high", "n", "s")]
    return pc.binary_join_element_wise(*numbers, "|")


def spread_answer(rows: Rows) -> str:
    values, channels = present(rows, "price"), present(rows, "channel")
    parts = [min(values, default=None), max(values, default=None), len(values), max(channels, default=None)]
    return "|".join("none" if part is None else str(part) for part in parts)


NO_PRICE = pa.scalar(None, pa.int32())
SPREAD = tr.aggregate(
    {
        "low": pa.scalar(None, pa.int32()),
        "high": pa.scalar(None, pa.int32()),
        "n": 0,
        "s": pa.scalar(None, pa.string()),
    },
    spread_update,
    spread_merge,
    spread_finish,
    "string",
)

HOLISTIC = Case(tr.median("score"), of("score", lambda values: float(statistics.median(values))))
CASES = [
    Case(tr.count(), len),
    Case(tr.count("price"), lambda rows: len(present(rows, "price"))),
    Case(tr.count_if("open"), lambda rows: sum(present(rows, "open"))),
    Case(tr.sum("price"), of("price", sum)),
    Case(tr.sum("cost"), of("cost", sum)),
    Case(tr.avg("price"), of("price", lambda v: sum(v) / len(v))),
    Case(tr.min("channel"), of("channel", min)),
    Case(tr.max("score"), of("score", max)),
    Case(tr.first("price"), by_time("price", min)),
    Case(tr.last("price"), by_time("price", max)),
    Case(tr.stddev("price"), of("price", statistics.stdev, 2)),
    Case(tr.stddev_pop("price"), of("price", statistics.pstdev)),
    Case(tr.var_samp("score"), of("score", statistics.variance, 2)),
    Case(tr.var_pop("score"), of("score", statistics.pvariance)),
    Case(tr.bool_and("open"), of("open", all)),
    Case(tr.bool_or("open"), of("open", any)),
    Case(tr.median("price"), of("price", lambda values: float(statistics.median(values)))),
    Case(tr.collect_list("price"), lambda rows: present(sorted(rows, key=lambda row: row["ts"]), "price")),
    Case(tr.count_distinct("price"), lambda rows: len(set(present(rows, "price")))),
    Case(tr.count_distinct("channel").alias("channels"), lambda rows: len(set(present(rows, "channel")))),
    Case(tr.count_distinct("price", "channel"), lambda rows: len(different(rows, "price", "channel"))),
    Case(tr.count_distinct("score", "wide", "open"), lambda rows: len(different(rows, "score", "wide", "open"))),
    Case(tr.collect_set("channel"), lambda rows: sorted(set(present(rows, "channel")))),
    Case(tr.collect_set("cost"), lambda rows: sorted(set(present(rows, "cost")))),
    Case(tr.collect_set("wide"), lambda rows: sorted(set(present(rows, "wide")))),
    Case(tr.collect_set("day"), lambda rows: sorted(set(present(rows, "day")))),
    Case(tr.sum_distinct("price"), of("price", lambda v: sum(set(v)))),
    Case(tr.sum_distinct("score"), of("score", lambda v: math.fsum(set(v)))),
    Case(tr.sum_distinct("cost"), of("cost", lambda v: sum(set(v)))),
    Case(tr.top_k("price", 3), lambda rows: sorted(present(rows, "price"), reverse=True)[:3]),
    Case(tr.top_k("channel", 2), lambda rows: sorted(present(rows, "channel"), reverse=True)[:2]),
    Case(tr.approx_count_distinct("price", 0.01), lambda rows: len(set(present(rows, "price")))),
    Case(tr.approx_count_distinct("channel", 0.01), lambda rows: len(set(present(rows, "channel")))),
    Case(tr.approx_count_distinct("score", 0.01), lambda rows: len(set(present(rows, "score")))),
    Case(tr.approx_percentile("price", 0.5), of("price", rank(0.5))),
    Case(tr.approx_percentile("score", [0.0, 0.9]), of("score", lambda v: [rank(0.0)(v), rank(0.9)(v)])),
    Case(tr.approx_percentile("day", 0.25), of("day", rank(0.25))),
    Case(SPREAD("price", "channel"), spread_answer),
    Case(tr.min_by("channel", "price"), by_order("channel", "price", min)),
    Case(tr.max_by("channel", "score"), by_order("channel", "score", max)),
    Case(tr.max_by("price", "channel"), by_order("price", "channel", max)),
    Case(tr.max_by("channel", "price", 3), best_by("channel", "price", 3, largest=True)),
    Case(tr.min_by("price", "score", 2), best_by("price", "score", 2, largest=False)),
]


# The input -----------------------------------------------------------------------------------------------------------

ARROW = pa.schema(
    [
        ("auction", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.int32()),
        ("score", pa.float64()),
        ("cost", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(37, 2)),
        ("channel", pa.string()),
        ("open", pa.bool_()),
        ("day", pa.date32()),
        ("big", pa.int64()),
        ("until", pa.timestamp("us", tz="UTC")),
    ]
)


@cache
def batches(seed: int) -> list[pa.RecordBatch]:
    """Rows of a few keys with nulls and equal values; time goes on, and no row is late."""
    random = np.random.default_rng(seed)
    made = []
    for epoch in range(EPOCHS):
        count = 60
        there = lambda values: [v if random.random() > 0.2 else None for v in values]  # noqa: E731
        numbers = random.integers(-5, 6, count)
        rows = {
            "auction": random.integers(0, 4, count),
            "ts": [epoch * 10 * SECOND + int(t) for t in random.integers(0, 10 * SECOND, count)],
            "price": there([int(n) for n in numbers]),
            "score": there([float(n) / 4 for n in random.integers(-20, 20, count)]),
            "cost": there([Decimal(int(n)).scaleb(-2) for n in random.integers(-300, 300, count)]),
            "wide": there([Decimal(int(n) * 10**30).scaleb(-2) for n in numbers]),
            "channel": there([f"channel-{n}" * (1 + int(n) % 3) for n in random.integers(0, 7, count)]),
            "open": there([bool(n) for n in random.integers(0, 2, count)]),
            "day": there([int(n) for n in random.integers(0, 5, count)]),
            "big": [2**62 + epoch * count + number for number in range(count)],
        }
        gaps = [SECOND // 3, SECOND, 4 * SECOND, SECOND // 10]
        rows["until"] = [time + gaps[int(n) % 4] for time, n in zip(rows["ts"], numbers, strict=True)]
        for name in ("ts", "until"):
            rows[name] = pa.array(rows[name], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        rows["day"] = pa.array(rows["day"], pa.int32()).cast(pa.date32())
        made.append(pa.RecordBatch.from_pydict(rows, schema=ARROW))
    return made


# What is asked, and its answers --------------------------------------------------------------------------------------


@cache
def groups_of(shape: str, seed: int) -> list[dict[Any, Rows]]:
    """The groups that each epoch emits, by what names them."""
    epochs = [batch.to_pylist() for batch in batches(seed)]
    found: list[dict[Any, Rows]] = [{} for _ in epochs]
    for epoch, name, rows in SHAPES[shape].groups(epochs):
        found[epoch][name] = rows
    assert sum(map(len, found)) > 10, "hardly anything is asked"
    return found


@cache
def answers_of(case: Case, shape: str, seed: int) -> list[dict[Any, Any]]:
    """The right answer for each of these groups."""
    return [{name: case.answer(rows) for name, rows in groups.items()} for groups in groups_of(shape, seed)]


def planned(shape: str, cases: list[Case]) -> AggregateSpec:
    stream = Stream("a DataFrame", COLUMNS, RecordingRuntime()).withWatermark("ts", "0 seconds")
    stream = SHAPES[shape].grouped(stream).agg(*(case.aggregate for case in cases))
    spec = plan_relation(stream.source, SHAPES[shape].mode, Options(shards=SHARDS)).operator
    sent = spec_from_json(spec.to_json())  # as it reaches a server
    assert isinstance(sent, AggregateSpec) and sent == spec
    return sent


# The engine ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How the operator is run; the answers must not depend on it."""

    memory_bytes: int = 1 << 28
    combine: bool = True
    restores: bool = False
    undoes: bool = False


WAYS = {
    "in memory": Way(),
    "not combined": Way(combine=False),
    "spilled": Way(memory_bytes=0),
    "restored": Way(restores=True),
    "undone": Way(undoes=True),
    "undone and spilled": Way(memory_bytes=0, undoes=True, combine=False),
}
TYPES = {field.name: field.type for field in COLUMNS}


def emitted(spec: AggregateSpec, given: list[pa.RecordBatch], way: Way, folder: Path) -> list[Rows]:
    made = 0

    def fresh() -> Operator:
        nonlocal made
        made += 1
        (folder / str(made)).mkdir()
        return operator_of(spec, range(SHARDS), memory_bytes=way.memory_bytes, folder=str(folder / str(made)))

    operator, sections = fresh(), defaultdict(list)
    late_before = watermark = MIN_MICROS
    out: list[Rows] = []
    for epoch, batch in enumerate(given):
        late_before = watermark
        watermark = max(watermark, *batch.column("ts").cast(pa.int64()).to_pylist())
        halves = [batch.slice(0, 25), batch.slice(25)]

        def step() -> Rows:
            frames = [
                ingest_of(spec, late_before, way.combine, TYPES, epoch).frame([half.select(list(spec.reads))])  # noqa: B023
                for half in halves  # noqa: B023
            ]
            operator.apply(epoch, frames)  # noqa: B023
            return [row for part in operator.advance(epoch, late_before, watermark) for row in part.to_pylist()]  # noqa: B023

        rows = step()
        if way.undoes:
            operator.undo(epoch)
            again = step()
            key = lambda row: repr([row[name] for name in row if name in ("auction", spec.window_name)])  # noqa: E731
            assert sorted(map(key, again)) == sorted(map(key, rows))
            rows = again
        out.append(rows)
        for shard, section in operator.delta(epoch).items():
            sections[shard].append(section)
        operator.forget(epoch)
        if way.restores:
            horizon = operator.horizon
            operator.close()
            operator = fresh()
            for shard in range(SHARDS):
                operator.restore(shard, sections[shard], horizon)
    operator.close()
    return out


def group_name(row: dict[str, Any], spec: AggregateSpec) -> tuple[Any, ...]:
    if not spec.windowed:
        return (row["auction"],)
    window = row[spec.window_name]
    return row["auction"], micros(window["start"]) if isinstance(window, dict) else window


def same_value(mine: Any, wanted: Any) -> bool:
    if isinstance(mine, float) and isinstance(wanted, int | float):
        return same(mine, float(wanted), 100.0)
    if isinstance(wanted, Decimal) and wanted == 0:
        return bool(mine == 0)
    return bool(mine == wanted)


def check(cases: list[Case], shape: str, way: Way, folder: Path, seed: int = 7) -> None:
    spec = planned(shape, cases)
    wanted = groups_of(shape, seed)
    for epoch, mine in enumerate(emitted(spec, batches(seed), way, folder)):
        by_name = {group_name(row, spec): row for row in mine}
        assert len(by_name) == len(mine), "a group is emitted twice"
        assert set(by_name) == set(wanted[epoch]), f"epoch {epoch}"
        for case in cases:
            for name, right in answers_of(case, shape, seed)[epoch].items():
                got = by_name[name][case.name]
                assert same_value(got, right), f"seed {seed}, epoch {epoch}, {name}: {case.name} is {got}, not {right}"


HALVES = {"first half": 0, "second half": 1}  # a record has room for so many values
each = pytest.mark.parametrize


@each("half", HALVES)
@each("way", ["in memory", "spilled"])
@each("shape", SHAPES)
def test_all_aggregates_together(shape: str, way: str, half: str, tmp_path: Path) -> None:
    """In one query, so that accumulators are shared and holistic ones stand beside mergeable ones."""
    check([HOLISTIC, *CASES[HALVES[half] :: 2]], shape, WAYS[way], tmp_path)


@each("half", HALVES)
@each("way", WAYS)
@each("shape", SHAPES)
def test_mergeable_aggregates_together(shape: str, way: str, half: str, tmp_path: Path) -> None:
    """On the read-modify-write store, which they are kept in where no holistic one stands beside them."""
    cases = [case for case in CASES[HALVES[half] :: 2] if not case.aggregate.function.holistic]
    spec = planned(shape, cases)
    assert (spec.pattern == "RMW") == (shape != "overlapping count")
    check(cases, shape, WAYS[way], tmp_path)


@each("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_each_aggregate_alone(number: int, tmp_path: Path) -> None:
    """With no accumulator of another one; over every third kind of window, since above all pairs are met."""
    for shape in list(SHAPES)[number % 3 :: 3]:
        (tmp_path / shape).mkdir()
        check([CASES[number]], shape, WAYS["in memory"], tmp_path / shape, seed=number % 3)


@each("shape", SHAPES)
@each("aggregate", [tr.sum("big"), tr.sum_distinct("big")], ids=lambda aggregate: aggregate.name)
@each("way", ["in memory", "not combined"])
def test_a_sum_that_overflows_says_where(way: str, aggregate: Aggregate, shape: str, tmp_path: Path) -> None:
    """Wherever it is added: in a task, with the rows before, when panes are put together, or from a set at the end."""
    spec = planned(shape, [Case(aggregate, len)])
    where = rf"operator aggregate, epoch \d: a sum left the range of bigint \(one of: {re.escape(aggregate.name)}\)"
    with pytest.raises(tr.SumOverflowError, match=where):
        emitted(spec, batches(7), WAYS[way], tmp_path)


def test_equal_values_of_a_key_are_kept_once(tmp_path: Path) -> None:
    """100,000 equal rows of one key: one partial of a few bytes is sent, and the state does not grow with them."""
    wanted = [tr.count_distinct("channel"), tr.top_k("price", 3), tr.collect_set("price")]
    spec = planned("rolling", [Case(one, len) for one in wanted])
    batch = pa.RecordBatch.from_pylist([{"auction": 1, "channel": "mail", "price": 7}] * 100_000).cast(
        pa.schema([("auction", pa.int64()), ("channel", pa.string()), ("price", pa.int32())])
    )
    batch = batch.append_column("ts", pa.array([0] * len(batch), pa.timestamp("us", tz="UTC")))
    operator = operator_of(spec, range(SHARDS), memory_bytes=1 << 28, folder=str(tmp_path))
    sizes = []
    for epoch in range(4):
        frame = ingest_of(spec, MIN_MICROS, True, TYPES, epoch).frame([batch.select(list(spec.reads))])
        assert frame.n == 1 and len(frame.heap) < 100
        operator.apply(epoch, [frame])
        (rows,) = operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        (delta,) = (section for section in operator.delta(epoch).values() if len(section))
        operator.forget(epoch)
        sizes.append(delta.nbytes)
    assert rows.to_pylist() == [
        {"auction": 1, "count(DISTINCT channel)": 1, "top_k(price, 3)": [7, 7, 7], "collect_set(price)": [7]}
    ]
    assert operator.rows == 1 and len(set(sizes)) == 1
    operator.close()
