"""Sessions against a model in plain Python: any order of rows, late ones, both modes, failed tries, lost servers."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.session_scenario import (
    GAP,
    STRING,
    TYPES,
    ChangedTable,
    Row,
    batch_of,
    emitted,
    final_sessions,
    judged,
    play,
    streams,
    wanted,
)
from tailrace.ids import MIN_MICROS, Micros
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Output
from tailrace.operators.aggregate.ingest import partials as input
from tailrace.operators.aggregate.ingest.partials import PartialIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.registry import operator_with
from tailrace.operators.resources import Resources
from tailrace.operators.session import dynamic_sessions, open_sessions
from tailrace.operators.session.aggregate import SessionAggregate
from tailrace.operators.windows.dynamic_session import DynamicSessionSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.layout import HASH, Merge
from tailrace.state.rows.rows import Rows
from tailrace.state.sections import compaction as section_compaction
from tailrace.types import BIGINT, TIMESTAMP, Field

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHARDS = 3
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
NAMES = ("n", "sum", "max", "last", "first time")


def spec_of(emit_changed: bool, complete: bool = False, *, own_gaps: bool = False) -> AggregateSpec:
    return AggregateSpec(
        name="sessions",
        keys=(Field("k", STRING),),
        accumulators=(
            Accumulator(Merge.MIN, AccumulatorInput.VALUE, "ts", TIMESTAMP),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "e" if own_gaps else "ts", TIMESTAMP),
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            Accumulator(Merge.ADD, AccumulatorInput.VALUE, "v", BIGINT),
            Accumulator(Merge.MAX, AccumulatorInput.VALUE, "s", STRING),
            Accumulator(Merge.LAST, AccumulatorInput.TIMED, "v", BIGINT),
        ),
        outputs=(
            Output("n", "count", (2,), BIGINT),
            Output("sum", "sum", (3,), BIGINT),
            Output("max", "max", (4,), STRING),
            Output("last", "last", (5,), BIGINT),
            Output("first time", "first", (0,), TIMESTAMP),
        ),
        window_name="session_window",
        window_position=0,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        complete=complete,
        watermarked=True,
        ansi=True,
        shards=SHARDS,
        window=DynamicSessionSpec("e") if own_gaps else SessionWindowSpec(Micros(GAP)),
    )


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys collide all the time, in the index and in full."""
    real = input.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(input, "put_hashes", coarse)


def answer(rows: list[Row]) -> tuple[Any, ...]:
    sums = [r[2] for r in rows if r[2] is not None]
    texts = [r[3].encode() for r in rows if r[3] is not None]
    last = max((r[1], r[2] is not None, r[2] or 0) for r in rows)
    return (
        len(rows),
        sum(sums) if sums else None,
        max(texts).decode() if texts else None,
        last[2] if last[1] else None,
        EPOCH + timedelta(microseconds=rows[0][1]),
    )


@settings(max_examples=2000 if LONG else 60, deadline=None, print_blob=True)
@given(
    streams(epochs_max=16),
    st.sampled_from(["append", "update", "complete"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0, 8000, 1 << 24]),
    st.integers(0, 1000),
)
def test_equals_the_model(
    epochs: list[list[Row]], mode: str, own_gaps: bool, combine: bool, memory_bytes: int | None, seed: int
) -> None:
    """Without any memory, all that can lie on disk does."""
    spec = spec_of(mode == "update", mode == "complete", own_gaps=own_gaps)
    judgement = judged(epochs, mode, own_gaps=own_gaps)

    def compact(sections: list[pa.RecordBatch]) -> pa.RecordBatch:
        return section_compaction.compact_records(spec.layout(), sections, MIN_MICROS)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (open_sessions, dynamic_sessions):
            patch.setattr(module, "_PIECE_ROWS", 1 + seed % 5)

        def make(shards: Iterable[int]) -> Any:
            return operator_with(spec, shards, Resources(memory_bytes, folder, threads=1))

        play(
            spec,
            make,
            compact,
            epochs,
            judgement,
            wanted(epochs, judgement, answer),
            combine=combine,
            seed=seed,
            forgets=0.8,
        )


@settings(max_examples=1000 if LONG else 50, deadline=None, print_blob=True)
@given(streams(epochs_max=12), st.booleans(), st.booleans(), st.sampled_from([None, 0, 8000]), st.integers(0, 1000))
def test_a_changelog_applied_to_a_table_gives_the_final_sessions(
    epochs: list[list[Row]], own_gaps: bool, combine: bool, memory_bytes: int | None, seed: int
) -> None:
    """Sessions that others absorb are taken back, with the values that they were given with."""
    spec = spec_of(True, own_gaps=own_gaps).with_changelog()
    judgement = judged(epochs, "update", own_gaps=own_gaps)
    table = ChangedTable()

    def compact(sections: list[pa.RecordBatch]) -> pa.RecordBatch:
        return section_compaction.compact_records(spec.layout(), sections, MIN_MICROS)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for module in (open_sessions, dynamic_sessions):
            patch.setattr(module, "_PIECE_ROWS", 1 + seed % 5)

        def make(shards: Iterable[int]) -> Any:
            return operator_with(spec, shards, Resources(memory_bytes, folder, threads=1))

        want = wanted(epochs, judgement, answer)
        play(spec, make, compact, epochs, judgement, want, combine=combine, seed=seed, read=table.apply)
    assert table.rows == final_sessions(epochs, answer, own_gaps=own_gaps)


def test_nothing_is_left_of_closed_sessions() -> None:
    spec = spec_of(False)
    operator = SessionAggregate(spec, range(SHARDS), Resources(threads=1))
    emitted_rows = 0
    for epoch in range(40):
        rows: list[Row] = [(str(i), 100 * epoch + i % 7, 1, "x") for i in range(300)]
        operator.apply(epoch, [PartialIngest(spec, MIN_MICROS, True, TYPES).frame([batch_of(rows)])])
        emitted_rows += sum(len(b) for b in operator.advance(epoch, 100 * (epoch - 1), 100 * epoch))
        operator.forget(epoch - 1)
        assert operator.rows == 300
    assert emitted_rows == 39 * 300
    operator.apply(40, [])
    operator.advance(40, 3900, 10_000)
    assert operator.rows == 0
    assert operator.nbytes < 500_000


@pytest.mark.parametrize("memory_bytes", [1 << 24, 0])
def test_a_long_session_is_one(tmp_path: Path, memory_bytes: int) -> None:
    """A session of thousands of panes, its rows in any order, with others beside it that it takes in."""
    spec = spec_of(False)
    operator = SessionAggregate(spec, range(SHARDS), Resources(memory_bytes, str(tmp_path), threads=1))
    times = list(range(0, 50_000, 10))
    random.Random(5).shuffle(times)
    frame = PartialIngest(spec, MIN_MICROS, True, TYPES).frame([batch_of([("a", time, 1, None) for time in times])])
    operator.apply(0, [frame])
    assert not operator.advance(0, MIN_MICROS, 50_000 - 1)
    operator.forget(0)
    assert (operator.disk_bytes > 0) == (memory_bytes == 0)
    operator.apply(1, [])
    found = emitted(operator.advance(1, 50_000 - 1, 50_000), NAMES)
    assert found == {("a", 0, 50_000): (5000, 5000, None, 1, EPOCH)}
    assert operator.rows == 0
