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
from support.operators.window_scenario import CUSTOM, Answers, Row, Wanted, by_count, by_time, play
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.base import Operator
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.top_n.spec import Order, TopNSpec
from tailrace.operators.warm_up import warm_up
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.layout import HASH
from tailrace.state.rows.rows import Rows
from tailrace.types import TIMESTAMP, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = row_ingest.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(row_ingest, "put_hashes", coarse)


def top_n(window: Any, *, emit_changed: bool, **given: Any) -> TopNSpec:
    settings: dict[str, Any] = {
        "name": "windows",
        "keys": (Field("k", cases.STRING),),
        "rows": cases.ROWS,
        "shown": ("v", "s"),
        "order": (Order("v", False),),
        "n": 2,
        "rank": "rank",
        "window_name": "window",
        "window_position": 1,
        "time_column": Field("ts", TIMESTAMP),
        "watermarked": True,
        "shards": cases.SHARDS,
    }
    return TopNSpec(window=window, emit_changed=emit_changed, **(settings | given))


def any_best(rng: random.Random) -> dict[str, Any]:
    """How many rows, by what, and what is shown of them."""
    names = rng.sample(["v", "s", "ts"], rng.randint(1, 2))
    order = tuple(Order(name, rng.random() < 0.5) for name in names)
    shown = tuple(rng.sample(["v", "s", "ts"], rng.randint(1, 3)))
    return {"n": rng.choice([1, 2, 5]), "order": order, "shown": shown}


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


def sorted_by(spec: TopNSpec, groups: dict[tuple[Any, ...], list[Row]]) -> Answers:
    """The best rows of each group, by the model of ``topN``."""
    requested = replace(spec, window=None, emit_changed=True, watermarked=False, latest=None)
    out: Answers = {}
    for group, rows in groups.items():
        model = TopNModel(requested)
        model.rows[group] = [dict(zip(("k", "ts", "v", "s"), row, strict=True)) for row in rows]
        chosen = model.best(group)
        # The event time is that of the window, whichever rows are its best.
        latest = () if spec.latest is None else (max(row[1] for row in rows if row[1] is not None),)
        out[group] = tuple((rank, *(row[name] for name in spec.shown), *latest) for rank, row in enumerate(chosen, 1))
    return out


def read(spec: TopNSpec, batches: list[pa.RecordBatch]) -> Answers:
    out: Answers = {}
    for batch in batches:
        assert batch.schema.names == [field.name for field in spec.emits]
        bounds = batch["window"].flatten() if pa.types.is_struct(batch["window"].type) else [batch["window"]]
        windows = zip(*(bound.cast(pa.int64()).to_pylist() for bound in bounds), strict=True)
        names = [*spec.shown, *([] if spec.latest is None else [spec.latest])]
        shown = [
            column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for column in (batch[name] for name in names)
        ]
        lines = zip(batch["rank"].to_pylist(), *(column.to_pylist() for column in shown), strict=True)
        for key, window, line in zip(batch["k"].to_pylist(), windows, lines, strict=True):
            assert line[0] == len(out.get((key, *window), ())) + 1, "ranks are not in order"
            out[key, *window] = (*out.get((key, *window), ()), line)
    return out


def check(spec: TopNSpec, epochs: list[list[Row]], wanted: Wanted, memory_bytes: int, seed: int) -> None:
    assert TopNSpec.from_json(spec.to_json()) == spec
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
    spec = top_n(CountWindowSpec(6, slide), emit_changed=True, watermarked=False)
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
    spec = top_n(SessionWindowSpec(gap), emit_changed=update, **any_best(rng))
    check(spec, epochs, by_session(epochs, update=update), memory_bytes, seed)


@EXAMPLES
@given(st.booleans(), MEMORY, st.integers(0, 2**32))
def test_of_a_users_windows(update: bool, memory_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    epochs = drawn(rng, nulls=True)
    spec = top_n(CUSTOM, emit_changed=update, **any_best(rng))
    check(spec, epochs, by_time(epochs, cases.window_of, update=update), memory_bytes, seed)


@EXAMPLES
@given(st.booleans(), MEMORY, st.integers(0, 2**32))
def test_of_windows_by_count(update: bool, memory_bytes: int, seed: int) -> None:
    rng = random.Random(seed)
    epochs, size = drawn(rng, nulls=True), rng.randint(1, 9)
    slide = rng.choice([size, rng.randint(1, size)])
    window = CountWindowSpec(size, slide if slide < size else None)
    timed = rng.random() < 0.5
    latest = "at" if timed else None
    spec = top_n(window, emit_changed=update, watermarked=timed, latest=latest, **any_best(rng))
    wanted = by_count(epochs, size, slide=slide, update=update, in_time=timed)
    check(spec, epochs, wanted, memory_bytes, seed)
