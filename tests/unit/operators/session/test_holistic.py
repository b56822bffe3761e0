"""Holistic aggregates over sessions against a model in plain Python, with everything that can go wrong."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.session_scenario import (
    GAP,
    STRING,
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
from tailrace.operators.aggregate.accumulators import Accumulator, AccumulatorInput, Inputs, Output
from tailrace.operators.aggregate.functions.descriptor import DESCRIPTORS
from tailrace.operators.aggregate.ingest.rows import RowIngest
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest import rows as row_ingest
from tailrace.operators.resources import Resources
from tailrace.operators.session import holistic as session_rows
from tailrace.operators.session.holistic import SessionRows
from tailrace.operators.windows.dynamic_session import DynamicSessionSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.state.append import unaligned as append_unaligned
from tailrace.state.layout import HASH, Merge
from tailrace.state.rows.rows import Rows
from tailrace.types import BIGINT, DOUBLE, TIMESTAMP, Field, array

SHARDS = 3
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
NAMES = ("n", "middle", "texts", "different")


def spec_of(emit_changed: bool, complete: bool = False, *, own_gaps: bool = False) -> AggregateSpec:
    return AggregateSpec(
        name="sessions",
        keys=(Field("k", STRING),),
        accumulators=(
            Accumulator(Merge.ADD, AccumulatorInput.ONE, None, BIGINT),
            *DESCRIPTORS["count_distinct"].accumulators(Inputs(("v",), (BIGINT,))),
        ),
        outputs=(
            Output("n", "count", (0,), BIGINT),
            Output("middle", "quantile", (), DOUBLE, ("v",), (0.5,)),
            Output("texts", "collect_list", (), array(STRING), ("s",)),
            Output("different", "count_distinct", (1,), BIGINT, ("v",)),
        ),
        window_name="session_window",
        window_position=1,
        time_column=Field("ts", TIMESTAMP),
        emit_changed=emit_changed,
        complete=complete,
        watermarked=True,
        ansi=True,
        shards=SHARDS,
        rows=(Field("s", STRING), Field("ts", TIMESTAMP), Field("v", BIGINT), *([Field("e", TIMESTAMP)] * own_gaps)),
        window=DynamicSessionSpec("e") if own_gaps else SessionWindowSpec(Micros(GAP)),
    )


def answer(rows: list[Row]) -> tuple[Any, ...]:
    values = [r[2] for r in rows if r[2] is not None]
    texts = sorted((r[1], r[3].encode()) for r in rows if r[3] is not None)
    middle = float(median(values)) if values else None
    return len(rows), middle, [text.decode() for _, text in texts], len(set(values))


@pytest.fixture(autouse=True)
def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys collide all the time, in the index and in full."""
    real = row_ingest.put_hashes

    def coarse(rows: Rows, program: np.ndarray) -> None:
        real(rows, program)
        rows.words[:, HASH] = rows.words[:, HASH] % 3 - 1

    monkeypatch.setattr(row_ingest, "put_hashes", coarse)


@settings(max_examples=1000 if LONG else 40, deadline=None, print_blob=True)
@given(
    streams(),
    st.sampled_from(["append", "update", "complete"]),
    st.booleans(),
    st.sampled_from([1 << 12, 1 << 24]),
    st.integers(0, 1000),
)
def test_equals_the_model(epochs: list[list[Row]], mode: str, own_gaps: bool, memory_bytes: int, seed: int) -> None:
    spec = spec_of(mode == "update", mode == "complete", own_gaps=own_gaps)
    judgement = judged(epochs, mode, own_gaps=own_gaps)

    def compact(sections: list[pa.RecordBatch]) -> pa.RecordBatch:
        return append_unaligned.compact_sections(spec.layout(), sections, MIN_MICROS)

    with tempfile.TemporaryDirectory() as folder:

        def make(shards: Iterable[int]) -> SessionRows:
            return SessionRows(spec, shards, Resources(memory_bytes=memory_bytes, folder=folder, threads=1))

        play(spec, make, compact, epochs, judgement, wanted(epochs, judgement, answer), combine=False, seed=seed)


@settings(max_examples=1000 if LONG else 30, deadline=None, print_blob=True)
@given(
    streams(),
    st.booleans(),
    st.sampled_from([1 << 12, 1 << 24]),
    st.sampled_from([1, 7, 1 << 17]),
    st.integers(0, 1000),
)
def test_a_changelog_applied_to_a_table_gives_the_final_sessions(
    epochs: list[list[Row]], own_gaps: bool, memory_bytes: int, at_once: int, seed: int
) -> None:
    spec = spec_of(True, own_gaps=own_gaps).with_changelog()
    judgement = judged(epochs, "update", own_gaps=own_gaps)
    table = ChangedTable()

    def compact(sections: list[pa.RecordBatch]) -> pa.RecordBatch:
        return append_unaligned.compact_sections(spec.layout(), sections, MIN_MICROS)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_rows, "READ_ROWS_MAX", at_once)

        def make(shards: Iterable[int]) -> SessionRows:
            return SessionRows(spec, shards, Resources(memory_bytes=memory_bytes, folder=folder, threads=1))

        want = wanted(epochs, judgement, answer)
        play(spec, make, compact, epochs, judgement, want, combine=False, seed=seed, read=table.apply)
    assert table.rows == final_sessions(epochs, answer, own_gaps=own_gaps)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_sessions_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: int) -> None:
    monkeypatch.setattr(session_rows, "READ_ROWS_MAX", at_once)
    spec = spec_of(False)
    operator = SessionRows(spec, range(SHARDS), Resources(memory_bytes=1 << 20, folder=str(tmp_path), threads=1))
    rows: list[Row] = [(key, time, time, key) for key in "abcdef" for time in range(0, 10 * (ord(key) - 95), 5)]
    operator.apply(0, [RowIngest(spec, MIN_MICROS).frame([batch_of(rows)])])
    out = operator.advance(0, MIN_MICROS, 10_000)
    judgement = judged([rows, [("z", 10_012, None, None)]], "append")
    first, second = wanted([rows, []], judgement, answer)
    assert emitted(out, NAMES) == first | second
    assert operator.rows == 0
    operator.close()
