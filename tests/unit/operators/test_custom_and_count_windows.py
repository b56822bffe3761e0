"""Windows of a user's own and by count, groups without a window, on every store that keeps them: against models in
plain Python, with rows in any order, late rows, tries that fail, servers that are lost, shards that move, no memory.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import random_columns as values
from support.operators import window_scenario as cases
from support.operators.window_scenario import (
    CUSTOM,
    HOLISTIC,
    INCREMENTAL,
    Row,
    by_count,
    by_time,
    over_all_time,
    play,
    spec_of,
)
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.holistic import sliding_windows as sliding_lists
from tailrace.operators.aggregate.ingest import partials as input
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.pattern import Pattern
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.rows import row_index as row_counts
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.layout import HASH, Merge
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EXAMPLES = settings(max_examples=600 if LONG else 30, deadline=None, print_blob=True)
COLLIDING = [True]
MEMORY = st.sampled_from([1 << 12, 1 << 24])
KEPT = [("RMW", INCREMENTAL), ("AAR", INCREMENTAL), ("AUR", INCREMENTAL), ("AAR", HOLISTIC), ("AUR", HOLISTIC)]
STORES = st.sampled_from(KEPT)


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys collide all the time, in the index and in full: but for AAR in update mode, which emits by hash."""
    real = row_ingest.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        if COLLIDING[0]:
            rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(row_ingest, "put_hashes", coarse)
    monkeypatch.setattr(input, "put_hashes", coarse)


def played(
    spec: AggregateSpec, epochs: list[list[Row]], wanted: Any, names: Iterable[str], memory_bytes: int, seed: int
) -> None:
    assert AggregateSpec.from_json(spec.to_json()) == spec
    COLLIDING[0] = not (spec.pattern is Pattern.AAR and spec.emit_changed)
    with tempfile.TemporaryDirectory() as folder:

        def make(shards: Iterable[int]) -> Operator:
            return operator_of(spec, shards, memory_bytes=memory_bytes, folder=folder)

        play(spec, make, epochs, wanted, names, combine=seed % 2 == 0, seed=seed)


@EXAMPLES
@given(cases.streams(nulls=True), STORES, st.booleans(), MEMORY, st.integers(0, 1000))
def test_windows_of_a_users_own(
    epochs: list[list[Row]], how: tuple[str, tuple[str, ...]], update: bool, memory_bytes: int, seed: int
) -> None:
    store, names = how
    spec = spec_of(names, window=CUSTOM, store=store, emit_changed=update)
    played(spec, epochs, by_time(epochs, cases.window_of, update=update), names, memory_bytes, seed)


@EXAMPLES
@given(cases.streams(), STORES, st.booleans(), MEMORY, st.integers(0, 1000))
def test_tumbling_windows_on_any_store(
    epochs: list[list[Row]], how: tuple[str, tuple[str, ...]], update: bool, memory_bytes: int, seed: int
) -> None:
    store, names = how
    window = TimeWindowSpec(Micros(10), Micros(10), Micros(3))
    spec = spec_of(names, window=window, store=store, emit_changed=update)
    wanted = by_time(epochs, lambda time: ((time - 3) // 10 * 10 + 3, (time - 3) // 10 * 10 + 13), update=update)
    played(spec, epochs, wanted, names, memory_bytes, seed)


@pytest.mark.parametrize(
    ("store", "names"),
    [("RMW", INCREMENTAL), ("AAR", HOLISTIC), ("AUR", INCREMENTAL), ("AUR", HOLISTIC)],
    ids=["RMW", "AAR", "AUR incremental", "AUR"],
)
@settings(EXAMPLES, max_examples=600 if LONG else 6)
@given(st.sampled_from([(10, 5, 0), (12, 5, 3), (9, 1, 0), (40, 30, 7)]), st.booleans(), MEMORY, st.integers(0, 2**48))
def test_sliding_windows_on_any_store(
    store: str, names: tuple[str, ...], shape: tuple[int, int, int], update: bool, memory_bytes: int, seed: int
) -> None:
    rng = random.Random(seed)
    epochs: list[list[Row]] = []
    now = rng.choice([0, -35, 1000])
    for _ in range(rng.randint(2, 6)):
        now += rng.choice([0, 5, 11, 40])
        rows: list[Row] = []
        for _ in range(rng.randint(0, 20)):
            time = None if rng.random() < 0.05 else now + rng.randint(-25, 15)
            rows.append((rng.choice([None, "", "a", "ß"]), time, rng.randint(-9, 9), rng.choice([None, "x", "yy"])))
        epochs.append(rows)
    spec = spec_of(names, window=TimeWindowSpec(*map(Micros, shape)), store=store, emit_changed=update)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # how many rows and lists are read at a time decides nothing
            patch.setattr(row_counts, "READ_ROWS_MAX", 1 + seed % 7)
            patch.setattr(sliding_lists, "_RECORDS_MAX", 1 + seed % 11)
        played(spec, epochs, cases.by_slide(epochs, *shape, update=update), names, memory_bytes, seed)


@EXAMPLES
@given(
    cases.streams(nulls=True),
    st.sampled_from([("RMW", INCREMENTAL), ("AUR", INCREMENTAL), ("AUR", HOLISTIC)]),
    st.booleans(),
    st.integers(1, 5),
    st.booleans(),
    MEMORY,
    st.integers(0, 1000),
)
def test_windows_by_count(
    epochs: list[list[Row]],
    how: tuple[str, tuple[str, ...]],
    update: bool,
    size: int,
    in_time: bool,
    memory_bytes: int,
    seed: int,
) -> None:
    store, names = how
    spec = spec_of(names, window=CountWindowSpec(size), store=store, emit_changed=update, watermarked=in_time)
    played(spec, epochs, by_count(epochs, size, update=update, in_time=in_time), names, memory_bytes, seed)


@settings(EXAMPLES, max_examples=600 if LONG else 15)
@given(
    cases.streams(nulls=True),
    st.sampled_from([(None, INCREMENTAL), ("AUR", INCREMENTAL), (None, HOLISTIC)]),
    st.booleans(),
    st.integers(2, 9).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size - 1))),
    st.booleans(),
    MEMORY,
    st.integers(0, 1000),
)
def test_windows_by_count_that_overlap(
    epochs: list[list[Row]],
    how: tuple[str | None, tuple[str, ...]],
    update: bool,
    shape: tuple[int, int],
    in_time: bool,
    memory_bytes: int,
    seed: int,
) -> None:
    store, names = how
    size, slide = shape
    spec = spec_of(names, window=CountWindowSpec(size, slide), store=store, emit_changed=update, watermarked=in_time)
    wanted = by_count(epochs, size, slide=slide, update=update, in_time=in_time)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:  # how many rows are read at a time decides nothing
            patch.setattr(row_counts, "READ_ROWS_MAX", size + seed % 5)
        played(spec, epochs, wanted, names, memory_bytes, seed)


@EXAMPLES
@given(cases.streams(nulls=True), st.sampled_from([INCREMENTAL, HOLISTIC]), MEMORY, st.integers(0, 1000))
def test_rows_of_a_key_over_all_time(
    epochs: list[list[Row]], names: tuple[str, ...], memory_bytes: int, seed: int
) -> None:
    spec = spec_of(names, store="AUR", emit_changed=True, watermarked=False)
    played(spec, epochs, over_all_time(epochs), names, memory_bytes, seed)


@pytest.mark.parametrize("type_name", values.ARROW)
def test_rows_of_every_type_fill_the_same_windows_in_whatever_order_they_come(tmp_path: Path, type_name: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    drawn = [None, *(values.draw(type_name, rng) for _ in range(6))]
    column = [rng.choice(drawn) for _ in range(60)]
    type_ = DataType(type_name)
    spec = spec_of(
        (),
        keys=(),
        accumulators=(
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.MIN, AccumulatorInput.VALUE, "v", type_),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "v", type_),
        ),
        outputs=(Output("low", "min", (1,), type_), Output("high", "max", (2,), type_)),
        window_position=0,
        rows=(Field("v", type_),),
        time_column=None,
        window=CountWindowSpec(7),
        watermarked=False,
    )
    found = []
    for _ in range(3):
        rng.shuffle(column)
        operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 20, folder=str(tmp_path))
        batch = pa.RecordBatch.from_pydict({"v": values.array(type_name, column)})
        ingests = [ingest_of(spec, MIN_MICROS, False, {"v": type_}) for _ in range(2)]
        operator.apply(0, [ingests[0].frame([batch.slice(0, 25)]), ingests[1].frame([batch.slice(25)])])
        rows = [row for made in operator.advance(0, MIN_MICROS, MIN_MICROS) for row in made.to_pylist()]
        found.append(sorted(repr(row).replace("-0.0", "0.0") for row in rows))
        operator.close()
    assert found[0] == found[1] == found[2] and len(found[0]) == 60 // 7


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"window": CUSTOM, "store": "RMW"}, 0),
        ({"window": CUSTOM, "store": "AAR"}, 0),
        ({"window": CUSTOM, "store": "AUR"}, 0),
        ({"window": TimeWindowSpec(Micros(10), Micros(10), Micros(0)), "store": "AUR"}, 0),
        ({"window": TimeWindowSpec(Micros(10), Micros(4), Micros(0)), "store": "AUR"}, 0),
        ({"window": CountWindowSpec(7), "watermarked": False, "store": "RMW"}, 5),  # a record a key
        (
            {"window": CountWindowSpec(7), "watermarked": False, "store": "AUR"},
            5 * (100 % 7),
        ),  # the rows of open windows
        # A head, a former one, and a record for each of the two panes that fit into a window.
        ({"window": CountWindowSpec(7, 3), "watermarked": False}, 5 * (2 + 2)),
        ({"window": CountWindowSpec(7, 3), "watermarked": False, "store": "AUR"}, 5 * (100 - 96)),
    ],
    ids=[
        *("custom RMW", "custom AAR", "custom AUR", "tumbling AUR", "sliding AUR", "count RMW", "count AUR"),
        *("sliding count RMW", "sliding count AUR"),
    ],
)
@pytest.mark.parametrize("update", [False, True], ids=["append", "update"])
def test_nothing_is_left_of_windows_that_are_over(
    tmp_path: Path, given: dict[str, Any], left: int, update: bool
) -> None:
    spec = spec_of(INCREMENTAL, emit_changed=update, **given)
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))
    for epoch in range(10):
        rows: list[Row] = [(key, 20 * epoch + at, at, "text") for key in "abcde" for at in range(10)]
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, cases.TYPES).frame([cases.batch_of(rows)])])
        operator.advance(epoch, 20 * epoch - 20, 20 * epoch)
    operator.apply(10, [])
    operator.advance(10, 180, 1000)
    for epoch in (11, 12, 13):
        operator.apply(epoch, [])
        operator.advance(epoch, 1000, 1000)
        operator.forget(epoch)
    assert operator.rows == left
    if hasattr(operator, "_index"):
        assert operator._index.store.rows == 0
    operator.close()


@pytest.mark.parametrize("store", ["AAR", "AUR"])
def test_keys_that_share_a_hash_by_their_nulls_do_not_change_together(tmp_path: Path, store: str) -> None:
    """Spark's hash skips nulls: ("x", null) and (null, "x") have the same."""
    keys = (Field("k", cases.STRING), Field("j", cases.STRING))
    window = TimeWindowSpec(Micros(10), Micros(10), Micros(0))
    spec = spec_of(("texts",), keys=keys, window=window, window_position=2, emit_changed=True, store=store)
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))
    emitted = []
    for epoch, pair in enumerate([("x", None), (None, "x")]):
        batch = cases.batch_of([(pair[0], 3, 1, "text")]).append_column("j", pa.array([pair[1]], pa.string()))
        types = cases.TYPES | {"j": cases.STRING}
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, types).frame([batch])])
        rows = [row for out in operator.advance(epoch, MIN_MICROS, MIN_MICROS) for row in out.to_pylist()]
        emitted.append([(row["k"], row["j"]) for row in rows])
    assert emitted == [[("x", None)], [(None, "x")]]
    operator.close()
