"""A user's function of the rows of windows that keys share, and of windows that are each key's own: whole windows in
every call, right answers whatever happens on the way, and errors that name operator and epoch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators import session_scenario as session_cases
from support.operators import window_scenario as window_cases
from support.operators.window_scenario import CUSTOM, STRING, Row, batch_of, by_count, by_slide, by_time, spec_of
from tailrace.errors import UserFunctionError
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Output
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.base import Operator
from tailrace.operators.planning.user_functions import packed
from tailrace.operators.registry import compact_sections, ingest_of, operator_of
from tailrace.operators.rows import row_index as row_counts
from tailrace.operators.session import holistic as session_rows
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.state.append import aligned
from tailrace.types import BIGINT, TIMESTAMP, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EXAMPLES = settings(max_examples=400 if LONG else 25, deadline=None, print_blob=True)
AT_ONCE = st.sampled_from([1, 7, 1 << 17])
NAMES = ("n", "total")
OUTPUTS = (
    Output("k", None, (), STRING),
    Output("n", None, (), BIGINT),
    Output("total", None, (), BIGINT),
)
WINDOWS: dict[str, dict[str, Any]] = {
    "custom": {"window": CUSTOM},
    "tumbling": {"window": TimeWindowSpec(Micros(10), Micros(10), Micros(0))},
    "sliding": {"window": TimeWindowSpec(Micros(12), Micros(5), Micros(3))},
}


def of_a_window(rows: pa.Table) -> pa.Table:
    """By key, for windows that keys share."""
    assert rows.column_names == ["k", "s", "ts", "v"]
    times = rows["ts"].cast(pa.int64()).to_pylist()
    assert times == sorted(times)
    made = rows.group_by("k").aggregate([([], "count_all"), ("v", "sum")])
    return made.rename_columns({"count_all": "n", "v_sum": "total"})


def of_many_windows(rows: pa.Table) -> pa.Table:
    """By window and key, for windows of each key's own. A window's rows lie together."""
    name = rows.column_names[0]
    windows = rows[name].combine_chunks()
    numbers = windows.flatten()[0] if pa.types.is_struct(windows.type) else windows
    seen = pa.table({"w": numbers, "k": rows["k"]})
    runs = sum(1 for a, b in zip(seen.to_pylist()[1:], seen.to_pylist(), strict=False) if a != b) + 1
    assert runs == len(seen.group_by(["w", "k"]).aggregate([])), "a window in two places"
    flat = rows.flatten()
    keys = [column for column in flat.column_names if column.startswith(name)]
    made = flat.group_by([*keys, "k"]).aggregate([([], "count_all"), ("v", "sum")])
    window = made[keys[0]]
    if len(keys) == 2:
        edges = [made[key].combine_chunks() for key in keys]
        window = pa.StructArray.from_arrays(edges, ["start", "end"])
    return pa.table({"total": made["v_sum"], "n": made["count_all"], "k": made["k"], name: window})


def function_spec(function: Callable[..., object], **given: Any) -> AggregateSpec:
    return spec_of((), outputs=OUTPUTS, accumulators=(), window_position=0, function=packed(function), **given)


@contextmanager
def reading(rows_at_once: int, memory_bytes: int, spec: AggregateSpec) -> Iterator[Callable[[Iterable[int]], Operator]]:
    """What makes operators that read about so many rows together."""
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        for module in (row_counts, session_rows):
            patched.setattr(module, "READ_ROWS_MAX", rows_at_once)
        yield lambda shards: operator_of(spec, shards, memory_bytes=memory_bytes, folder=folder)


@EXAMPLES
@given(
    window_cases.streams(),
    st.sampled_from(sorted(WINDOWS)),
    st.sampled_from(["AAR", "AUR"]),
    st.booleans(),
    AT_ONCE,
    st.sampled_from([1 << 12, 1 << 24]),
    st.integers(0, 1000),
)
def test_windows_that_keys_share(
    epochs: list[list[Row]], kind: str, store: str, update: bool, at_once: int, memory_bytes: int, seed: int
) -> None:
    spec = function_spec(of_a_window, emit_changed=update, store=store, **WINDOWS[kind])
    if kind == "sliding":
        wanted = by_slide(epochs, 12, 5, 3, update=update)
    else:
        windows = window_cases.window_of if kind == "custom" else lambda time: (time // 10 * 10, time // 10 * 10 + 10)
        wanted = by_time(epochs, windows, update=update)
    with reading(at_once, memory_bytes, spec) as make:
        window_cases.play(spec, make, epochs, wanted, NAMES, combine=False, seed=seed, at_least=update)


@EXAMPLES
@given(window_cases.streams(nulls=True), st.booleans(), st.integers(1, 5), AT_ONCE, st.integers(0, 1000))
def test_windows_by_count(epochs: list[list[Row]], update: bool, size: int, at_once: int, seed: int) -> None:
    spec = function_spec(of_many_windows, emit_changed=update, window=CountWindowSpec(size), watermarked=False)
    wanted = by_count(epochs, size, update=update)
    with reading(at_once, 1 << 12, spec) as make:
        window_cases.play(spec, make, epochs, wanted, NAMES, combine=False, seed=seed)


@EXAMPLES
@given(session_cases.streams(), st.sampled_from(["append", "update"]), AT_ONCE, st.integers(0, 1000))
def test_sessions(epochs: list[list[session_cases.Row]], mode: str, at_once: int, seed: int) -> None:
    spec = function_spec(
        of_many_windows,
        emit_changed=mode == "update",
        window=SessionWindowSpec(Micros(session_cases.GAP)),
        window_name="session_window",
    )
    judgement = session_cases.judged(epochs, mode)

    def answer(rows: list[Row]) -> tuple[Any, ...]:
        values = [row[2] for row in rows if row[2] is not None]
        return rows[0][0], len(rows), sum(values) if values else None

    def compact(sections: list[pa.RecordBatch]) -> pa.RecordBatch:
        return compact_sections(spec, sections, MIN_MICROS, complete=False)

    wanted = session_cases.wanted(epochs, judgement, answer)
    with reading(at_once, 1 << 12, spec) as make:
        session_cases.play(spec, make, compact, epochs, judgement, wanted, combine=False, seed=seed)


# What a call sees ----------------------------------------------------------------------------------------------------


def rows_and_keys(rows: pa.Table) -> pa.Table:
    keys = rows["k"].unique() if "k" in rows.column_names else []
    return pa.table({"k": ["call"], "n": [len(rows)], "total": [len(keys)]})


@pytest.mark.parametrize("store", ["AAR", "AUR"])
def test_a_function_without_keys_sees_a_window_of_any_size_whole(tmp_path: Path, store: str) -> None:
    """Of rows that take more than is read at once."""
    count = 900_000
    spec = function_spec(
        rows_and_keys, store=store, keys=(), rows=(Field("ts", TIMESTAMP), Field("v", BIGINT)), **WINDOWS["tumbling"]
    )
    times = pa.array(np.arange(count) % 10).cast(pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_pydict({"ts": times, "v": pa.array(np.arange(count))})
    frame = ingest_of(spec, MIN_MICROS, False, window_cases.TYPES).frame([batch])
    assert frame.rows.nbytes > aligned.PIECE_BYTES
    assert np.count_nonzero(np.diff(frame.bounds)) == 1, "all windows are on one server"
    operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))
    operator.apply(0, [frame])
    made = pa.Table.from_batches(operator.advance(0, MIN_MICROS, 20))
    assert made["n"].to_pylist() == [count]
    operator.close()


def test_a_function_of_keys_sees_each_of_them_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned.AppendAlignedStore.read_made, "__defaults__", (2000,))
    spec = function_spec(rows_and_keys, **WINDOWS["tumbling"])
    rows: list[Row] = [(f"{number % 50}", 3, number, None) for number in range(1000)]
    operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 24, folder=str(tmp_path))
    operator.apply(0, [ingest_of(spec, MIN_MICROS, False, window_cases.TYPES).frame([batch_of(rows)])])
    calls = pa.Table.from_batches(operator.advance(0, MIN_MICROS, 20)).to_pylist()
    assert len(calls) > 5
    assert sum(call["n"] for call in calls) == 1000 and sum(call["total"] for call in calls) == 50
    operator.close()


# What goes wrong -----------------------------------------------------------------------------------------------------

ROWS: list[Row] = [(key, time, time, key) for key in "abc" for time in range(20)]


def without_the_window(rows: pa.Table) -> pa.Table:
    return of_many_windows(rows).drop_columns(["window"])


def another_window(rows: pa.Table) -> pa.Table:
    made = of_many_windows(rows)
    return made.set_column(3, "window", pa.array([99] * len(made)))


def no_window(rows: pa.Table) -> pa.Table:
    made = of_many_windows(rows)
    return made.set_column(3, "window", pa.nulls(len(made), pa.int64()))


def raises(rows: pa.Table) -> pa.Table:
    return rows["no such column"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_the_window, ".* was declared to give window int64, k string, n int64, total int64"),
        (
            another_window,
            r"another_window gave \d+ of \d+ rows a window that was not in the table it got, for example 99",
        ),
        (no_window, r"no_window gave \d+ of \d+ rows a window that was not in the table it got, for example None"),
        (raises, r"raises raised KeyError(.|\n)*no such column"),
    ],
)
def test_a_function_that_fails_names_operator_and_epoch(
    tmp_path: Path, function: Callable[..., object], message: str
) -> None:
    spec = function_spec(function, window=CountWindowSpec(5), watermarked=False)
    operator = operator_of(spec, range(spec.shards), memory_bytes=1 << 20, folder=str(tmp_path))
    operator.apply(3, [ingest_of(spec, MIN_MICROS, False, window_cases.TYPES).frame([batch_of(ROWS)])])
    with pytest.raises(UserFunctionError, match=f"operator windows, epoch 3: function {message}"):
        operator.advance(3, MIN_MICROS, MIN_MICROS)
    operator.undo(3)
    assert operator.rows == 0
    operator.close()
