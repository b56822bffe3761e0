"""What an operator records of its accesses, against a model that goes row by row, window by window, in plain Python."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.operators.window_scenario import HOLISTIC, INCREMENTAL, TYPES, spec_of
from tailrace.ids import MIN_MICROS, Micros
from tailrace.lab.gadget.traces.recording import read_recording
from tailrace.lab.gadget.traces.trace import Operation, TraceError
from tailrace.operators.accesses.recorder import RecordedOperator, recording_metadata
from tailrace.operators.aggregate.spec import AggregateSpec
from tailrace.operators.ingest.frame import Frame
from tailrace.operators.join.spec import How, JoinKind, JoinSpec
from tailrace.operators.pattern import Pattern
from tailrace.operators.registry import ingest_of, operator_of
from tailrace.operators.spec import SIDE, TIME
from tailrace.operators.windows.count_window import CountWindowSpec
from tailrace.operators.windows.session_window import SessionWindowSpec
from tailrace.operators.windows.time_window import TimeWindowSpec
from tailrace.server.epoch.access_log import AccessLog
from tailrace.state.rows.columns import arrow_type
from tailrace.types import BIGINT, DataType, Field

TUMBLING = TimeWindowSpec(Micros(10), Micros(10), Micros(3))
SLIDING = TimeWindowSpec(Micros(10), Micros(4), Micros(0))
DELAY = 6


def join_of(how: How) -> JoinSpec:
    sides = {"left": (Field("a", BIGINT),), "right": (Field("b", BIGINT),)}
    keys = (Field("k", DataType("string")),)
    return JoinSpec("j", keys, kind=JoinKind.WINDOW, how=how, shards=4, watermarked=True, window=SLIDING, **sides)


SPECS: dict[str, Any] = {
    "continuous": spec_of(INCREMENTAL, emit_changed=True, watermarked=False),
    "tumbling": spec_of(INCREMENTAL, window=TUMBLING),
    "sliding": spec_of(INCREMENTAL, window=SLIDING),
    "tumbling, update": spec_of(INCREMENTAL, window=TUMBLING, emit_changed=True),
    "sliding, update": spec_of(INCREMENTAL, window=SLIDING, emit_changed=True),
    "sliding, whole groups": spec_of(HOLISTIC, window=SLIDING),
    "tumbling, whole groups, AUR": spec_of(HOLISTIC, window=TUMBLING, store=Pattern.AUR.value),
    "sliding, whole groups, AUR": spec_of(HOLISTIC, window=SLIDING, store=Pattern.AUR.value),
    "join": join_of(How.INNER),
    "outer join": join_of(How.LEFT_OUTER),
    "full outer join": join_of(How.FULL_OUTER),
}
ROWS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "ß", "dd"]), st.integers(0, 90), st.booleans()), max_size=14)
Access = tuple[str, Any, int]


def batch_of(spec: Any, rows: list[Any]) -> tuple[pa.RecordBatch, dict[str, DataType]]:
    if isinstance(spec, JoinSpec):
        types = {each.name: each.type for each in (*spec.keys, *spec.rows)}
        values: dict[str, list[Any]] = {"k": [row[0] for row in rows], TIME: [row[1] for row in rows]}
        values |= {SIDE: [row[2] for row in rows], "a": [1] * len(rows), "b": [2] * len(rows)}
    else:
        types = TYPES
        values = {"k": [row[0] for row in rows], "ts": [row[1] for row in rows]}
        values |= {"v": [1] * len(rows), "s": ["text"] * len(rows)}
    arrays = [pa.array(values[name], arrow_type(type_)) for name, type_ in types.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(types)), types


class Model:
    """One entry a key and window."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.accesses: list[Access] = []
        self.events: list[Any] = []
        self.live: list[tuple[Any, int]] = []  # in the order of their first access

    def row(self, key: Any, time: int, right: bool, late_before: int) -> None:
        spec, window = self.spec, self.spec.window
        if isinstance(spec, JoinSpec) and key is None and int(right) not in spec.outer_sides:
            return
        starts = [0]
        if window is not None:
            starts = [
                s for s in range(-50, 100) if (s - window.offset) % window.slide == 0 and s <= time < s + window.size
            ]
            starts = [start for start in starts if start + window.size > late_before]
        if starts:
            self.events.append(key)
        for start in starts:
            if (key, start) not in self.live:
                self.live.append((key, start))
            for operation in ("MERGE",) if spec.sends_rows else ("GET", "PUT"):
                self.accesses.append((operation, key, start))

    def close(self, watermark: int) -> None:
        if self.spec.window is None or not self.spec.watermarked:
            return
        gone = sorted((s, at, k) for at, (k, s) in enumerate(self.live) if s + self.spec.window.size <= watermark)
        for start, _, key in gone:
            for operation in ("DELETE",) if self.spec.emit_changed else ("GET", "DELETE"):
                self.accesses.append((operation, key, start))
            self.live.remove((key, start))


def numbered(values: list[Any]) -> list[int]:
    return [list(dict.fromkeys(values)).index(value) for value in values]


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=15)
@given(epochs=st.lists(st.lists(ROWS, max_size=2), max_size=5), memory=st.sampled_from([0, 10**8]), redo=st.booleans())
def test_accesses_are_those_of_the_model(name: str, epochs: list[Any], memory: int, redo: bool) -> None:
    spec = SPECS[name]
    with tempfile.TemporaryDirectory() as folder:
        log = AccessLog(folder, spec.name, "server", recording_metadata(spec))
        operator: Any = RecordedOperator(
            operator_of(spec, range(spec.shards), memory_bytes=memory, folder=folder), spec, log
        )
        model = Model(spec)
        late_before, mark = MIN_MICROS, MIN_MICROS
        for number, partitions in enumerate(epochs):
            frames = []
            for rows in partitions:
                batch, types = batch_of(spec, rows)
                ingest = ingest_of(spec, late_before, False, types)
                ingest.keep_arrivals = True
                # In two frames, as tasks send them.
                for part in (batch[: len(rows) // 2], batch[len(rows) // 2 :]):
                    if len(part):
                        frames.append(Frame.from_batch(ingest.frame([part]).to_batch(), spec.layout().words))
            times = [row[1] for rows in partitions for row in rows]
            if times and spec.watermarked:
                mark = max(mark, max(times) - DELAY)
            if redo:
                operator.apply(number, frames[:1])
                operator.advance(number, late_before, late_before)
                operator.undo(number)
            operator.apply(number, frames)
            operator.advance(number, late_before, mark)
            for rows in partitions:
                for key, time, right in rows:
                    model.row(key, time, right, late_before)
            model.close(mark)
            late_before = mark
        operator.close()
        if not epochs:
            return
        found = read_recording(Path(folder))
    assert [Operation(each).name for each in found.operations] == [operation for operation, _, _ in model.accesses]
    assert found.keys.tolist() == numbered([(key, start) for _, key, start in model.accesses])
    assert found.events is not None and found.events.keys.tolist() == numbered(model.events)
    written = found.value_sizes > 0
    assert written.tolist() == [operation in ("PUT", "MERGE") for operation, _, _ in model.accesses]
    assert found.metadata["origin"] == "recorded" and found.key_bytes > 0


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(INCREMENTAL, window=SessionWindowSpec(10)),
        spec_of(INCREMENTAL, window=CountWindowSpec(3), watermarked=False),
        spec_of(HOLISTIC, window=SLIDING, emit_changed=True),
        spec_of(HOLISTIC, emit_changed=True, watermarked=False),
    ],
    ids=["session", "count", "update of whole groups", "whole groups over all time"],
)
def test_other_operators_are_refused_in_words(spec: AggregateSpec) -> None:
    wrong = spec.why_not_recordable()
    assert wrong is not None and wrong.startswith("accesses of windows cannot be recorded: aggregates over all time")


def test_a_recording_that_breaks_off_counts_up_to_there(tmp_path: Path) -> None:
    spec = SPECS["tumbling"]
    log = AccessLog(str(tmp_path), spec.name, "server", recording_metadata(spec))
    operator: Any = RecordedOperator(operator_of(spec, range(4), memory_bytes=10**8, folder=str(tmp_path)), spec, log)
    for number in range(3):
        batch, types = batch_of(spec, [("a", number, False)] * 100)
        operator.apply(number, [ingest_of(spec, MIN_MICROS, False, types).frame([batch])])
        operator.advance(number, MIN_MICROS, MIN_MICROS)
    complete = log.path.read_bytes()
    assert len(read_recording(log.path)) == 600
    operator.undo(2)
    assert len(read_recording(log.path)) == 400
    log.path.write_bytes(complete[:-700])
    assert len(read_recording(log.path)) == 400
    log.path.write_bytes(b"nothing like it")
    with pytest.raises(TraceError, match="cannot be read as a recording"):
        read_recording(log.path)
    with pytest.raises(TraceError, match="there is no recording"):
        read_recording(tmp_path / "other.accesses")
    with pytest.raises(TraceError, match="holds no recording"):
        (tmp_path / "empty").mkdir()
        read_recording(tmp_path / "empty")


def test_a_folder_that_cannot_be_written_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spec = SPECS["tumbling"]
    log = AccessLog(str(tmp_path / "file"), spec.name, "server", recording_metadata(spec))
    operator: Any = RecordedOperator(operator_of(spec, range(4), memory_bytes=10**8, folder=str(tmp_path)), spec, log)
    batch, types = batch_of(spec, [("a", 1, False)])
    operator.apply(0, [ingest_of(spec, MIN_MICROS, False, types).frame([batch])])
    assert sum(len(each) for each in operator.advance(0, MIN_MICROS, 50)) == 1
