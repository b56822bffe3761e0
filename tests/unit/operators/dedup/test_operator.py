"""Dropping duplicates against a dictionary: every way to forget, out of order, in and out of memory, undone, moved."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.dedup import NO_WATERMARK, DeduplicateModel
from support.operators.row_cluster import RowCluster
from support.operators.scenario import Scenario, play
from tailrace.ids import Micros
from tailrace.operators import output
from tailrace.operators.dedup import operator as deduplicate
from tailrace.operators.dedup.operator import Deduplicate
from tailrace.operators.dedup.spec import DeduplicateSpec, Memory
from tailrace.operators.registry import ingest_of
from tailrace.operators.resources import Resources
from tailrace.state.rows.columns import arrow_type
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SECOND = 1_000_000
UNIT = 300_000
"""Of event times; panes are at least a second wide."""
FAR = 2**61 // UNIT
TYPES = {
    "k": DataType("string"),
    "n": DataType("decimal(30,2)"),
    "ts": TIMESTAMP,
    "number": BIGINT,
    "note": DataType("binary"),
    "price": DOUBLE,
}
NAMES = list(TYPES)
TIME = NAMES.index("ts")
KINDS = {
    "no watermark": (("k", "n"), False, False),
    "no watermark, one key": (("n",), False, False),
    "not among the keys": (("k",), True, False),
    "among the keys": (("ts", "k"), True, False),
    "within": (("k", "n"), True, True),
    "within, among the keys": (("k", "ts"), True, True),
}


def draw_spec(kind: str, rng: random.Random) -> DeduplicateSpec:
    names, watermarked, within = KINDS[kind]
    time = Field("ts", rng.choice([TIMESTAMP, DataType("timestamp_ntz")]))
    columns = [time if name == "ts" else Field(name, type_) for name, type_ in TYPES.items()]
    rng.shuffle(columns)
    spec = DeduplicateSpec(
        name="d",
        keys=tuple(column for name in names for column in columns if column.name == name),
        columns=tuple(columns),
        time_column=time if watermarked or rng.random() < 0.5 else None,
        watermarked=watermarked,
        within=within,
        delay=Micros(rng.choice([0, 1, 7, 40]) * UNIT + rng.choice([0, 1])),
        handed_over=rng.random() < 0.3,
        shards=rng.choice([1, 3, 5]),
    )
    assert spec.memory in {
        "no watermark": [Memory.FOREVER],
        "no watermark, one key": [Memory.FOREVER],
        "not among the keys": [Memory.FOREVER],
        "among the keys": [Memory.KEY_TIME],
    }.get(kind, [Memory.WITHIN])
    return spec


class Stream:
    """Random rows, and the watermark that they make; now and then it lags behind, as it does behind a join."""

    def __init__(self, spec: DeduplicateSpec, rng: random.Random) -> None:
        self.spec = spec
        self.rng = rng
        self.keys = [
            (rng.choice(["", "a", "bee", "ü", None]), rng.choice([Decimal("0.10"), Decimal(f"{10**20}.00"), None]))
            for _ in range(rng.randint(1, 8))
        ]
        self.now = rng.choice([0, -50, 10**6, 4 * 10**9, FAR, -FAR]) * UNIT
        self.seen = NO_WATERMARK
        self.lag = rng.choice([0, 0, 0, 10**9])
        self.watermark = NO_WATERMARK
        self.used = 0
        self.past: list[Any] = []

    def partitions(self, count: int) -> list[list[Any]]:
        self.now += self.rng.choice([0, 1, 5, 50]) * UNIT
        drawn = [self._row() for _ in range(count)]
        drawn += [row for row in drawn if self.rng.random() < 0.1]  # the very same again
        self.past += drawn
        cuts = sorted(self.rng.randrange(len(drawn) + 1) for _ in range(self.rng.randint(0, 2)))
        return [drawn[low:high] for low, high in zip([0, *cuts], [*cuts, len(drawn)])]

    def _row(self) -> Any:
        rng = self.rng
        k, n = rng.choice(self.keys)
        time: int | None = self.now - rng.randint(-2, 20) * UNIT + rng.choice([0, 0, 0, rng.randint(-9, 9)])
        if rng.random() < 0.07:
            time = None
        if self.past and rng.random() < 0.3:  # one of some time ago, or just now, comes again
            k, n, time, *_ = rng.choice(self.past[-60:])
        self.used += 1
        note = rng.choice([None, b"", b"note %d" % self.used])
        return (k, n, time, self.used, note, rng.choice([None, 0.5 * self.used, float("inf")]))

    def next_watermark(self, partitions: list[list[Any]]) -> int:
        times = [row[TIME] for rows in partitions for row in rows if row[TIME] is not None]
        self.seen = max([self.seen, *times])
        if self.seen == NO_WATERMARK or not self.spec.watermarked:
            return NO_WATERMARK
        behind = self.spec.delay + (self.lag * UNIT if self.rng.random() < 0.5 else 0)
        return max(self.watermark, self.seen - behind)


def model_of(spec: DeduplicateSpec) -> DeduplicateModel:
    return DeduplicateModel(
        [NAMES.index(key.name) for key in spec.keys],
        TIME if spec.time_column is not None else None,
        within=spec.memory is Memory.WITHIN,
        delay=spec.delay,
        behind=int(spec.handed_over),
    )


class FirstRows(Scenario):
    sizes = (0, 1, 10, 40)

    def __init__(self, cluster: RowCluster, stream: Stream) -> None:
        super().__init__(cluster)
        self.stream, self.model = stream, model_of(stream.spec)

    def given(self, epoch: int, count: int) -> tuple[Any, ...]:
        late, partitions = self.stream.watermark, self.stream.partitions(count)
        self.stream.watermark = self.stream.next_watermark(partitions)
        return partitions, late, self.stream.watermark

    def saved(self) -> Any:
        return self.stream.now, self.stream.seen, self.stream.watermark, self.cluster.late_rows

    def rewind_to(self, saved: Any) -> None:
        self.stream.now, self.stream.seen, self.stream.watermark, self.cluster.late_rows = saved

    def check(self, epoch: int, given: tuple[Any, ...], found: list[Any]) -> None:
        spec, late = self.stream.spec, given[1]
        places = [NAMES.index(column.name) for column in spec.columns]
        rows = self.model.epoch(*given)
        wanted = Counter(repr(tuple(row[place] for place in places)) for row in rows)
        assert Counter(map(repr, found)) == wanted, f"epoch {epoch}"
        assert self.cluster.late_rows == self.model.late
        if late > NO_WATERMARK:
            # What a next operator relies on: no row comes that is late by the declared watermark.
            assert all(row[TIME] is None or row[TIME] >= late - spec.output_delay for row in rows)
        if spec.memory is Memory.FOREVER:
            assert self.cluster.rows == len(self.model.remembered)

    def restart(self) -> None:
        # A delay may change from one run to the next, and so may the width of panes.
        rng, spec = self.stream.rng, self.stream.spec
        if rng.random() < 0.5 and not spec.within:
            self.stream.spec = replace(spec, delay=Micros(rng.choice([0, 3, 400]) * UNIT))
        self.cluster.restart(self.stream.spec)


def run_scenario(kind: str, seed: int, epochs: int) -> RowCluster:
    """One stream from its seed, checked epoch by epoch."""
    rng = random.Random(seed)
    spec = draw_spec(kind, rng)
    stream = Stream(spec, rng)
    with tempfile.TemporaryDirectory() as folder:
        types = {column.name: column.type for column in spec.columns}
        cluster = RowCluster(spec, {name: types[name] for name in NAMES}, rng, folder, rng.choice([None, 1, 2, 50]))
        play(FirstRows(cluster, stream), rng, epochs, failing=0.15, restarting=0.12)
        return cluster


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 6)
def test_the_first_row_of_a_key_is_emitted(kind: str, seed: int) -> None:
    run_scenario(kind, seed, epochs=10)


@given(kind=st.sampled_from(list(KINDS)), seed=st.integers(0, 2**48))
@settings(max_examples=200 if LONG else 10)
def test_steps_may_be_as_small_as_they_like(kind: str, seed: int) -> None:
    """How many rows are worked on, and emitted, at a time decides nothing; nor how many panes there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deduplicate, "PIECE_ROWS", 2)
        patch.setattr(output, "OUTPUT_ROWS_MAX", 3)
        patch.setattr(deduplicate, "_PANES_MAX", 1 + seed % 3)
        run_scenario(kind, seed, epochs=6)


def test_a_key_that_comes_again_in_the_pane_of_its_last_time_has_one_record(tmp_path: Path) -> None:
    """Its old record is forgotten but still there, on disk: panes are a second wide, the delay is less."""
    spec = replace(draw_spec("within", random.Random(0)), delay=Micros(SECOND // 4), shards=1, handed_over=False)
    operator = Deduplicate(spec, [0], Resources(memory_bytes=0, folder=str(tmp_path)))
    emitted = []
    for epoch, (time, late, watermark) in enumerate(
        [(100_000, 0, 0), (2_000, 0, 360_000), (400_000, 360_000, 360_000)]
    ):
        ingest = ingest_of(spec, late, False, TYPES)
        row = {"k": "a", "n": None, "ts": time, "number": epoch, "note": None, "price": None}
        schema = pa.schema([(name, arrow_type(type_)) for name, type_ in TYPES.items()])
        operator.apply(epoch, [ingest.frame([pa.RecordBatch.from_pylist([row], schema=schema)])])
        emitted += [
            number for batch in operator.advance(epoch, late, watermark) for number in batch["number"].to_pylist()
        ]
        operator.forget(epoch)  # so that it may go to disk
        assert operator.rows == 1
    assert emitted == [0, 2] and operator.disk_bytes > 0
    operator.close()


def test_scenarios_spill_to_disk() -> None:
    """The property above says little if all of its keys fit memory."""
    assert any(run_scenario("within", seed, epochs=8).wrote_segments for seed in range(6))
