"""A user's function of windows is held to what it promised; errors name operator and epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.operators.window_scenario import HOLISTIC, INCREMENTAL, TYPES, Row, assign, batch_of, spec_of
from tailrace.errors import UserFunctionError
from tailrace.ids import MIN_MICROS
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.user_code.windows import Assigner
from tailrace.operators.windows.custom_window import CustomWindowSpec
from tailrace.state.tuning import DEFAULT_TUNING, Tuning

STORES = [("RMW", INCREMENTAL), ("AAR", HOLISTIC), ("AUR", HOLISTIC)]
HOUR = 3_600_000_000
TIMES = np.array([-1, 0, 5, HOUR, 3 * HOUR + 7])


def custom(
    function: Callable[..., object], trigger: Callable[..., object] | None = None, **given: Any
) -> AggregateSpec:
    spec = CustomWindowSpec(packed(function), None if trigger is None else packed(trigger))
    return spec_of(given.pop("names", INCREMENTAL), window=spec, **given)


def hours(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert times.dtype == np.dtype("datetime64[us]")
    starts = times.astype("datetime64[h]")
    return starts, starts + np.timedelta64(1, "h")


def in_arrow(times: np.ndarray) -> list[pa.Array]:
    starts, ends = hours(times)
    seconds = pa.array(starts.astype("datetime64[s]"), pa.timestamp("s"))
    return [seconds, pa.chunked_array([pa.array(ends.astype("datetime64[ns]"), pa.timestamp("ns", tz="UTC"))])]


@pytest.mark.parametrize("function", [hours, in_arrow])
def test_any_unit_of_numpy_or_arrow_will_do(function: Callable[..., object]) -> None:
    starts, ends = Assigner(custom(function)).windows(TIMES)
    assert starts.tolist() == [-HOUR, 0, 0, HOUR, 3 * HOUR]
    assert ends.tolist() == [0, HOUR, HOUR, 2 * HOUR, 4 * HOUR]
    assert [len(part) for part in Assigner(custom(function)).windows(TIMES[:0])] == [0, 0]


def shifted(times: np.ndarray) -> Any:
    starts, ends = hours(times)
    return starts + np.timedelta64(1, "us"), ends


def shut(times: np.ndarray) -> Any:
    return times, times


def endless(times: np.ndarray) -> Any:
    return times, np.full(len(times), np.datetime64(2**62 + 1, "us"))


def of_a_batch(times: np.ndarray) -> Any:
    return np.full(len(times), times.min()), times + np.timedelta64(1, "us")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            shifted,
            r"gave 2 of 5 another: time 1970-01-01T00:00:00.000000 in \[1970-01-01T00:00:00.000001, 1970-01-01T01",
        ),
        (shut, r"gave 5 of 5 another: time 1969-12-31T23:59:59.999999 in \[1969-12-31T23:59:59.999999, 1969-12"),
        (endless, "gave 5 of 5 another"),
        (
            of_a_batch,
            "gave two windows that start at 1969-12-31T23:59:59.999999: one ends at 1970-01-01T00:00:00.000000",
        ),
        (lambda times: times, r"gave a ndarray, and must give a pair \(starts, ends\)"),
        (lambda times: (times[1:], times[1:]), r"its starts have the shape \(4,\), and must be 5"),
        (lambda times: (times, times.astype(int)), "its ends are int64, and must be numpy.datetime64"),
        (
            lambda times: (times.astype("datetime64[h]"), np.full(5, np.datetime64("NaT"))),
            "its ends have 5 without a v",
        ),
        (lambda times: 1 // 0, "raised ZeroDivisionError(.|\n)*1 // 0"),
    ],
)
def test_what_breaks_its_promise_is_reported(function: Callable[..., object], message: str) -> None:
    with pytest.raises(UserFunctionError, match=f"operator windows, epoch 7: function .*{message}"):
        Assigner(custom(function), epoch=7).windows(TIMES)


def test_a_function_that_cannot_be_loaded_is_reported() -> None:
    with pytest.raises(UserFunctionError, match="operator windows: the function of a custom window cannot be loaded"):
        Assigner(spec_of(INCREMENTAL, window=CustomWindowSpec("bm90aGluZw==")))


# One end for a start -------------------------------------------------------------------------------------------------

WIDTH = [10]


def of_some_width(times: np.ndarray) -> Any:
    starts = (times.astype(int) // 10 * 10).astype("datetime64[us]")
    return starts, starts + np.timedelta64(WIDTH[0], "us")


def frame_of(spec: AggregateSpec, rows: list[Row], width: int) -> Frame:
    """Rows ingested with windows so wide. The function is pickled by name here, so that it can be changed."""
    WIDTH[0] = width
    ingest = ingest_of(spec, MIN_MICROS, False, TYPES)
    ingest._placer._assigner._assign = of_some_width  # type: ignore[attr-defined]
    return ingest.frame([batch_of(rows)])


@pytest.mark.parametrize(("store", "names"), STORES, ids=[store for store, _ in STORES])
def test_a_start_with_another_end_is_refused_in_whatever_batch_and_after_a_restore(
    tmp_path: Path, store: str, names: tuple[str, ...]
) -> None:
    spec = custom(of_some_width, names=names, store=store)

    def fresh(shards: range = range(spec.shards)) -> Operator:
        return operator_of(spec, shards, memory_bytes=1 << 20, folder=str(tmp_path))

    first, second = [("a", 3, 1, "x")], [("b", 4, 2, "y"), ("b", 12, 2, "y")]
    operator = fresh()
    operator.apply(0, [frame_of(spec, first, 10)])
    operator.advance(0, MIN_MICROS, 0)
    sections = operator.delta(0)
    restored = fresh(range(0))
    for shard in range(spec.shards):
        restored.restore(shard, [sections[shard]] if shard in sections else [], operator.horizon)
    for each in (operator, restored):
        with pytest.raises(UserFunctionError, match=r"operator windows, epoch 1: .* two windows that start at 1970"):
            each.apply(1, [frame_of(spec, second, 20)])
        each.undo(1)
        each.apply(1, [frame_of(spec, second, 10)])
        batches = each.advance(1, 0, 20)
        assert sum(len(batch) for batch in batches) == 3
        each.apply(2, [frame_of(spec, [("c", 25, 1, "z")], 10)])
        each.advance(2, 20, 30)
        each.apply(3, [frame_of(spec, [("c", 25, 1, "z"), ("a", 3, 1, "x")], 40)])  # what is long closed is forgotten
        each.close()


# Estimates -----------------------------------------------------------------------------------------------------------


def at_the_end(starts: np.ndarray, ends: np.ndarray, newest: np.ndarray) -> np.ndarray:
    assert ((starts <= newest) & (newest < ends)).all()
    return ends


def unknown(starts: np.ndarray, ends: np.ndarray, newest: np.ndarray) -> np.ndarray:
    return np.full(len(starts), np.datetime64("NaT"))


def prefetched(tmp_path: Path, trigger: Callable[..., object] | None, tuning: Tuning = DEFAULT_TUNING) -> int:
    """Lists that were read ahead while windows closed one by one, from disk."""
    spec = custom(assign, trigger, names=HOLISTIC)
    operator: Any = operator_of(spec, range(spec.shards), memory_bytes=1 << 12, folder=str(tmp_path), tuning=tuning)
    for epoch in range(4):
        rows: list[Row] = [(f"{key}", 40 * key + epoch, key, "x" * 50) for key in range(60)]
        operator.apply(epoch, [ingest_of(spec, MIN_MICROS, False, TYPES).frame([batch_of(rows)])])
        operator.advance(epoch, MIN_MICROS, MIN_MICROS)
        operator.forget(epoch)
    found = 0
    for number in range(60):
        operator.apply(4 + number, [])
        batches = operator.advance(4 + number, 40 * number, 40 * number + 40)
        found += sum(batch["n"].to_numpy().sum() for batch in batches)
    assert found == 240
    stats = operator.list_stats()
    assert stats.hits + stats.misses > 0
    operator.close()
    return int(stats.lists_prefetched)


def test_windows_are_read_ahead_by_their_ends_or_by_the_users_estimate(tmp_path: Path) -> None:
    ahead = prefetched(tmp_path, None)
    assert ahead > 0
    assert prefetched(tmp_path, at_the_end) == ahead
    assert prefetched(tmp_path, unknown) == 0
    assert prefetched(tmp_path, None, Tuning(read_batch_ratio=0.0)) == 0
    assert prefetched(tmp_path, None, Tuning(read_batch_ratio=0.5)) > ahead


def test_an_estimate_that_fails_is_reported(tmp_path: Path) -> None:
    def fails(starts: np.ndarray, ends: np.ndarray, newest: np.ndarray) -> Any:
        raise LookupError("no idea")

    spec = custom(assign, fails, names=HOLISTIC)
    operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 20, folder=str(tmp_path))
    with pytest.raises(
        UserFunctionError, match="operator windows, epoch 2: function fails raised LookupError: no idea"
    ):
        operator.apply(2, [ingest_of(spec, MIN_MICROS, False, TYPES).frame([batch_of([("a", 1, 1, "a")])])])
    operator.undo(2)
    assert operator.rows == 0
    operator.close()
