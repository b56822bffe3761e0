"""The best rows of sessions, of windows by count and of a user's own, against sorting the rows that a model puts there:
in both modes, with rows in any order, tries that fail, servers that are lost, shards that move, no memory.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.call_counts import calls
from support.models.top_n import TopNModel
from support.operators import session_scenario as session_cases
from support.operators import window_scenario as cases
from support.operators.window_scenario import CUSTOM, Answers, Row, Wanted, by_count, by_time, play, spec_of
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.top_n.best_spec import Best, Order
from tailrace.operators.top_n.spec import TopNSpec
from tailrace.operators.warm_up import warm_up
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.layout import HASH
from tailrace.state.rows.rows import Rows

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_ingest.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(row_ingest, "put_hashes", coarse)


def best_of(rng: random.Random) -> Best:
    names = rng.sample(["v", "s", "ts"], rng.randint(1, 2))
    order = tuple(Order(name, rng.random() < 0.5) for name in names)
    return Best(rng.choice([1, 2, 5]), order, tuple(rng.sample(["v", "s", "ts"], rng.randint(1, 3))), "rank")


def drawn(rng: random.Random, *, nulls: bool) -> list[list[Row]]:
    """Few keys and few values, so that groups are large and every column is needed to distinguish rows."""
    epochs: list[list[Row]] = []
    now = rng.choice([0, -35, 1000])
    for _ in range(rng.randint(2, 7)):
        now += rng.choice([0, 5, 10, 11, 40])
        rows: list[Row] = []
        for _ in range(rng.randint(0, 14)):
            time = None if nulls and rng.random() < 0.05 else now + rng.randint(-15, 8)
            rows.append((rng.choice([None, "a"]), time, rng.choice([None, 0, 1]), rng.choice([None, "", "ä", "b"])))
        epochs.append(rows)
    return epochs


def sorted_by(spec: AggregateSpec, groups: dict[tuple[Any, ...], list[Row]]) -> Answers:
    """The best rows of each group, by the model of ``topN``."""
    best = spec.best
    assert best is not None
    requested = TopNSpec(
        name="t",
        keys=spec.keys,
        rows=spec.rows,
        shown=best.shown,
        order=best.order,
        n=best.n,
        rank="rank",
        window=None,
        window_name="",
        window_position=0,
        time_column=spec.time_column,
        emit_changed=True,
        watermarked=False,
        shards=1,
    )
    out: Answers = {}
    for group, rows in groups.items():
        model = TopNModel(requested)
        model.rows[group] = [dict(zip(("k", "ts", "v", "s"), row, strict=True)) for row in rows]
        chosen = model.best(group)
        # The event time is that of the window, whichever rows are its best.
        latest = () if best.time is None else (max(row[1] for row in rows if row[1] is not None),)
        out[group] = tuple((rank, *(row[name] for name in best.shown), *latest) for rank, row in enumerate(chosen, 1))
    return out


def read(spec: AggregateSpec, batches: list[pa.RecordBatch]) -> Answers:
    assert spec.best is not None
    out: Answers = {}
    for batch in batches:
        assert batch.schema.names == [field.name for field in spec.emits]
        bounds = batch["window"].flatten() if pa.types.is_struct(batch["window"].type) else [batch["window"]]
        windows = zip(*(bound.cast(pa.int64()).to_pylist() for bound in bounds), strict=True)
        names = [*spec.best.shown, *([] if spec.best.time is None else [spec.best.time])]
        shown = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in (batch[name] for name in names)
        ]
        lines = zip(batch["rank"].to_pylist(), *(column.to_pylist() for column in shown), strict=True)
        for key, window, line in zip(batch["k"].to_pylist(), windows, lines, strict=True):
            assert line[0] == len(out.get((key, *window), ())) + 1, "ranks are not in order"
            out[key, *window] = (*out.get((key, *window), ()), line)
    return out


def check(spec: AggregateSpec, epochs: list[list[Row]], wanted: Wanted, memory_bytes: int, seed: int) -> None:
    assert AggregateSpec.from_json(spec.to_json()) == spec
    with tempfile.TemporaryDirectory() as folder:

        def make(shards: Iterable[int]) -> Operator:
            return operator_of(spec, shards, memory_bytes=memory_bytes, folder=folder)

        play(
            spec,
            make,
            epochs,
            wanted,
            (),
            combine=seed % 2 == 0,
            seed=seed,
            answers=lambda groups: sorted_by(spec, groups),
            read=lambda batches: read(spec, batches),
        )


def by_session(epochs: list[list[Row]], *, update: bool) -> Wanted:
    given: Any = epochs
    judgement = session_cases.judged(given, "update" if update else "append")
    groups: Any = session_cases.wanted(given, judgement, tuple)
    closing = [MIN_MICROS if mark is None else mark for mark in judgement.closing]
    return Wanted(groups, list(judgement.late), closing, [0] * len(epochs))


@pytest.mark.parametrize("slide", [None, 4])
def test_ten_times_the_keys_need_no_more_calls_of_python(slide: int | None, tmp_path: Any) -> None:
    best = Best(2, (Order("v", False),), ("v", "s"), "rank")
    given = {"window": CountWindowSpec(6, slide), "watermarked": False}
    spec = spec_of((), accumulators=(), best=best, emit_changed=True, **given)
    warm_up()

    def of(keys: int) -> Counter[str]:
        operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 26, folder=str(tmp_path))
        batch = cases.batch_of([(f"key {at % keys}", at, at % 7, "text") for at in range(5 * keys)])

        def epoch(number: int) -> None:
            operator.apply(number, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([batch])])
            assert operator.advance(number, MIN_MICROS, MIN_MICROS)
            operator.delta(number)

        for number in range(3):
            epoch(number)
        found = calls(lambda: epoch(3))
        operator.close()
        return found

    few, many = of(200), of(2_000)
    # Runs of the store's are merged when they have become many, which is not the same epoch for both.
    assert many.total() < 1.2 * few.total() + 100, f"calls that grow with the keys: {many - few}"


EXAMPLES = settings(max_examples=400 if LONG else 10, deadline=None, print_blob=True)
MEMORY = st.sampled_from([1 << 12, 1 << 24])


@EXAMPLES
@given(st.booleans(), MEMORY, st.integers(0, 2**32))
def test_of_sessions(update: bool, memory_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    epochs, gap = drawn(rng, nulls=False), Micros(session_cases.GAP)
    spec = spec_of((), accumulators=(), window=SessionWindowSpec(gap), best=best_of(rng), emit_changed=update)
    check(spec, epochs, by_session(epochs, update=update), memory_bytes, seed)


@EXAMPLES
@given(st.booleans(), MEMORY, st.integers(0, 2**32))
def test_of_a_users_windows(update: bool, memory_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    epochs = drawn(rng, nulls=True)
    spec = spec_of((), accumulators=(), window=CUSTOM, best=best_of(rng), emit_changed=update)
    check(spec, epochs, by_time(epochs, cases.window_of, update=update), memory_bytes, seed)


@EXAMPLES
@given(st.booleans(), MEMORY, st.integers(0, 2**32))
def test_of_windows_by_count(update: bool, memory_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    epochs, size = drawn(rng, nulls=True), rng.randint(1, 9)
    slide = rng.choice([size, rng.randint(1, size)])
    window = CountWindowSpec(size, slide if slide < size else None)
    timed = rng.random() < 0.5
    best = replace(best_of(rng), time="at" if timed else None)
    spec = spec_of((), accumulators=(), best=best, emit_changed=update, watermarked=timed, window=window)
    wanted = by_count(epochs, size, slide=slide, update=update, in_time=timed)
    check(spec, epochs, wanted, memory_bytes, seed)
