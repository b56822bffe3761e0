"""The operator against a model in plain Python: partial aggregation, merging, closing, undoing, restoring."""

from __future__ import annotations

import random
from collections import defaultdict
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.env.files.scratch import temporary_folder
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest import partials as input
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.aggregate.window_aggregate import WindowAggregate, compact_sections
from tailrace.operators.ingest.frame import Frame, split
from tailrace.operators.resources import Resources
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import HASH, Merge
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, DataType, Field

STRING = DataType("string")
SHARDS = 4


def spec_of(window: TimeWindowSpec | None, emit_changed: bool) -> AggregateSpec:
    wide = DataType("decimal(30,2)")
    accumulators = (
        Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
        Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
        Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", STRING),
        Accumulator(Merge.LAST, AccumulatorInput.TIMED, "s", STRING),
        Accumulator(Merge.ADD, AccumulatorInput.VALUE, "d", wide),
        Accumulator(Merge.MOMENTS, AccumulatorInput.DOUBLE, "v", DOUBLE),
    )
    outputs = (
        Output("n", "count", (0,), BIGINT),
        Output("sum", "sum", (1,), BIGINT),
        Output("max", "max", (2,), STRING),
        Output("last", "last", (3,), STRING),
        Output("dsum", "sum", (4,), wide),
        Output("dev", "stddev", (5,), DOUBLE),
    )
    return AggregateSpec(
        name="counts",
        keys=(Field("k", STRING), Field("j", BIGINT)),
        accumulators=accumulators,
        outputs=outputs,
        window=window,
        window_name="window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        watermarked=window is not None,
        ansi=True,
        shards=SHARDS,
    )


TYPES = {"v": BIGINT, "s": STRING, "d": DataType("decimal(20,2)"), "ts": TIMESTAMP, "k": STRING, "j": BIGINT}
rows_strategy = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "ß", "aa", "\x00"]),
        st.sampled_from([None, 1, 2]),
        st.integers(0, 60),
        st.one_of(st.none(), st.integers(-1000, 1000)),
        st.one_of(st.none(), st.text(max_size=5)),
        st.one_of(st.none(), st.integers(-(10**18), 10**18)),
    ),
    max_size=30,
)


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys collide all the time, in the index and in full."""
    real = input.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(input, "put_hashes", coarse)


def batch_of(rows: list[tuple]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "k": pa.array([r[0] for r in rows], pa.string()),
            "j": pa.array([r[1] for r in rows], pa.int64()),
            "ts": pa.array([r[2] for r in rows], pa.timestamp("us", tz="UTC")),
            "v": pa.array([r[3] for r in rows], pa.int64()),
            "s": pa.array([r[4] for r in rows], pa.string()),
            "d": pa.array([None if r[5] is None else Decimal(r[5]).scaleb(-2) for r in rows], pa.decimal128(20, 2)),
        }
    )


def expected(rows: list[tuple]) -> tuple:
    values = [r[3] for r in rows if r[3] is not None]
    strings = [r[4].encode() for r in rows if r[4] is not None]
    last = max((r[2], r[4] is not None, (r[4] or "").encode()) for r in rows)
    decimals = [r[5] for r in rows if r[5] is not None]
    deviation = None
    if len(values) > 1:
        mean = sum(values) / len(values)
        deviation = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    return (
        len(rows),
        sum(values) if values else None,
        max(strings).decode() if strings else None,
        last[2].decode() if last[1] else None,
        Decimal(sum(decimals)).scaleb(-2) if decimals else None,
        deviation,
    )


class Model:
    """Which rows belong to which window, and what each epoch must emit."""

    def __init__(self, window: TimeWindowSpec | None, emit_changed: bool, delay: int) -> None:
        self.window, self.emit_changed, self.delay = window, emit_changed, delay
        self.rows: dict[tuple, list[tuple]] = defaultdict(list)
        self.watermark = MIN_MICROS
        self.late = 0

    def windows(self, ts: int) -> list[int]:
        if self.window is None:
            return [0]
        w = self.window
        low = ts - w.size
        return [s for s in range(w.offset - 20 * w.slide, ts + 1, w.slide) if low < s <= ts]

    def end(self, start: int) -> int:
        return 2**62 if self.window is None else start + self.window.size

    def epoch(self, rows: list[tuple]) -> tuple[dict[tuple, tuple], int, int]:
        before, touched = self.watermark, set()
        for row in rows:
            open_ = [s for s in self.windows(row[2]) if self.end(s) > before]
            self.late += not open_
            for start in open_:
                self.rows[row[0], row[1], start].append(row)
                touched.add((row[0], row[1], start))
            self.watermark = max(self.watermark, row[2] - self.delay)
        if self.emit_changed:
            out = {key: expected(self.rows[key]) for key in touched}
        else:
            out = {k: expected(r) for k, r in self.rows.items() if before < self.end(k[2]) <= self.watermark}
        for key in [k for k in self.rows if self.end(k[2]) <= self.watermark]:
            del self.rows[key]
        return out, before, self.watermark


def emitted(batches: list[pa.RecordBatch], windowed: bool) -> dict[tuple, tuple]:
    out: dict[tuple, tuple] = {}
    for batch in batches:
        for row in batch.to_pylist():
            start = row["window"]["start"].timestamp() * 1e6 if windowed else 0
            key = (row["k"], row["j"], round(start))
            assert key not in out, f"{key} twice"
            out[key] = tuple(row[name] for name in ("n", "sum", "max", "last", "dsum", "dev"))
    return out


def same(got: dict, want: dict) -> None:
    assert got.keys() == want.keys()
    for key, values in want.items():
        assert got[key][:5] == values[:5], key
        deviation = None if values[5] is None else pytest.approx(values[5], rel=1e-6, abs=1e-6)
        assert got[key][5] == deviation, key


WINDOWS = [
    None,
    TimeWindowSpec(Micros(10), Micros(10), Micros(0)),
    TimeWindowSpec(Micros(10), Micros(5), Micros(3)),
    TimeWindowSpec(Micros(10), Micros(4), Micros(0)),
    TimeWindowSpec(Micros(13), Micros(5), Micros(2)),
]


@settings(max_examples=60, deadline=None)
@given(
    epochs=st.lists(rows_strategy, min_size=1, max_size=6),
    window=st.sampled_from(WINDOWS),
    changed=st.booleans(),
    combine=st.booleans(),
    memory=st.sampled_from([None, 0, 0, 9000]),
    seed=st.integers(0, 1000),
)
def test_equals_the_model(
    epochs: list, window: TimeWindowSpec | None, changed: bool, combine: bool, memory: int | None, seed: int
) -> None:
    with temporary_folder() as folder:
        equals_the_model(epochs, window, changed, combine, {"memory_bytes": memory, "folder": folder}, seed)


def equals_the_model(
    epochs: list, window: TimeWindowSpec | None, changed: bool, combine: bool, budget: dict, seed: int
) -> int:
    """Returns the most bytes that were on disk before an epoch's windows were emitted."""
    disk_bytes = 0
    changed = changed or window is None
    spec = spec_of(window, changed)
    model = Model(window, changed, delay=7)
    chance = random.Random(seed)
    # Two servers, each with its shards; sections of every epoch are kept to restore from.
    ranges = [(0, 1), (1, SHARDS)]
    servers = [WindowAggregate(spec, range(*r), Resources(**budget)) for r in ranges]
    sections: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for epoch, rows in enumerate(epochs):
        want, before, watermark = model.epoch(rows)

        def frames(given_rows: list[tuple], late_before: int = before) -> list[Frame]:
            out = []
            cut = len(given_rows) // 2
            for part in (given_rows[:cut], given_rows[cut:]):
                ingest = PartialIngest(spec, late_before, combine, TYPES)
                out.append(ingest.frame([batch_of(part)]))
            return out

        complete = frames(rows)
        got: dict[tuple, tuple] = {}
        for number, server in enumerate(servers):
            mine = [split(frame, spec.layout(), ranges)[number] for frame in complete]
            if chance.random() < 0.4:  # a try that fails half-way
                junk = frames(epochs[chance.randrange(len(epochs))])
                server.apply(epoch, [split(frame, spec.layout(), ranges)[number] for frame in junk])
                if chance.random() < 0.5:
                    server.advance(epoch, before, watermark + chance.randrange(20))
                server.undo(epoch)
            server.apply(epoch, mine)
            disk_bytes = max(disk_bytes, server.disk_bytes)
            got |= emitted(server.advance(epoch, before, watermark), window is not None)
            for shard, batch in server.delta(epoch).items():
                sections[shard].append(batch)
        same(got, want)
        if chance.random() < 0.5:
            for server in servers:
                server.forget(epoch - chance.randrange(2))
        if chance.random() < 0.3:  # the first server is lost and comes back from its sections
            horizon = servers[0].horizon
            servers[0].close()
            servers[0] = WindowAggregate(spec, [], Resources(**budget))
            for shard in range(*ranges[0]):
                if chance.random() < 0.5 and sections[shard]:
                    sections[shard] = [compact_sections(spec, sections[shard], horizon)]
                servers[0].restore(shard, sections[shard], horizon)
    for server in servers:
        server.close()
    return disk_bytes


@pytest.mark.parametrize("memory", [0, 9000])
@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_equals_the_model_in_little_memory(
    monkeypatch: pytest.MonkeyPatch, window: TimeWindowSpec | None, changed: bool, memory: int
) -> None:
    """Time goes on slowly here, so that windows stay open for several epochs, mostly on disk."""
    monkeypatch.setattr("tailrace.state.read_modify_write.scan.PIECE_BYTES", 500)
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [None, "", "a", "ß", "aa", "\x00", "long" * 9]
    for combine in (True, False):
        epochs = [
            [
                (
                    chance.choice(names),
                    chance.choice([None, 1, 2, 3, 4, 5]),
                    4 * epoch + chance.randrange(14),
                    chance.choice([None, chance.randrange(-1000, 1000)]),
                    chance.choice([None, str(chance.random())]),
                    chance.choice([None, chance.randrange(10**18)]),
                )
                for _ in range(chance.choice([0, 5, 40]))
            ]
            for epoch in range(10)
        ]
        with temporary_folder() as folder:
            budget = {"memory_bytes": memory, "folder": folder}
            disk_bytes = equals_the_model(epochs, window, changed, combine, budget, chance.randrange(1000))
        assert disk_bytes > 0 or memory or not any(epochs[:6])


def test_late_rows_are_counted() -> None:
    window = WINDOWS[1]
    ingest = PartialIngest(spec_of(window, False), late_before=20, combine=False, input_types=TYPES)
    frame = ingest.frame([batch_of([("a", 1, 9, 1, "x", 1), ("a", 1, 10, 1, "x", 1), ("a", 1, 20, 1, "x", 1)])])
    assert (ingest.counts.late_rows, frame.n, ingest.counts.times_max) == (2, 1, [20])


def test_a_checked_sum_that_overflows_is_refused() -> None:
    from tailrace.errors import SumOverflowError

    spec = spec_of(None, True)
    operator = WindowAggregate(spec, range(SHARDS), Resources())
    frame = PartialIngest(spec, MIN_MICROS, False, TYPES).frame([batch_of([("a", 1, 1, 2**62, "x", 1)] * 3)])
    with pytest.raises(SumOverflowError, match="sum"):
        operator.apply(0, [frame])
    operator.undo(0)
    assert operator.rows == 0


def test_batches_too_large_to_be_one_are_all_ingested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings of more than 2 GiB together stay in several batches; here nothing is put together at all."""
    rows = [(str(i), i, i, i, str(i) * 3, i) for i in range(10)]
    spec = spec_of(None, True)
    want = PartialIngest(spec, MIN_MICROS, False, TYPES).frame([batch_of(rows)])

    class Apart:
        def __init__(self, batches: list[pa.RecordBatch]) -> None:
            self._batches = batches

        @classmethod
        def from_batches(cls, batches: list[pa.RecordBatch]) -> Apart:
            return cls(batches)

        def combine_chunks(self) -> Apart:
            return self

        def to_batches(self) -> list[pa.RecordBatch]:
            return self._batches

    monkeypatch.setattr("tailrace.operators.aggregate.ingest.partials.pa.Table", Apart)
    got = PartialIngest(spec, MIN_MICROS, False, TYPES).frame([batch_of(rows[:3]), batch_of(rows[3:])])
    monkeypatch.undo()
    answers = []
    for frame in (want, got):
        operator = WindowAggregate(spec, range(SHARDS), Resources())
        operator.apply(0, [frame])
        answers.append(emitted(operator.advance(0, 0, 0), windowed=False))
    assert len(answers[0]) == 10
    assert answers[0] == answers[1]


def test_event_times_at_the_edge_of_64_bits_are_refused() -> None:
    from tailrace.errors import AnalysisError

    ingest = PartialIngest(spec_of(WINDOWS[1], True), MIN_MICROS, False, TYPES)
    with pytest.raises(AnalysisError, match="ts"):
        ingest.frame([batch_of([("a", 1, 2**63 - 2, 1, "x", 1)])])
