"""Trace files: what is written is read again, and what is damaged is refused with its file, column and row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.lab.gadget.traces.trace import Events, Trace, TraceError, TraceWriter, joined, read_trace, write_trace


def trace(
    operations: list[int], keys: list[int], sizes: list[int], events: Events | None = None, **metadata: str
) -> Trace:
    columns = np.array(operations, np.uint8), np.array(keys, np.int64), np.array(sizes, np.int32)
    return Trace(*columns, np.arange(len(operations), dtype=np.int64) * 5, events, metadata)


SMALL = trace(
    [0, 1, 2, 3], [0, 0, 1, 1], [0, 10, 4, 0], Events(np.array([9]), np.array([7])), workload="x", key_bytes="12"
)


def same(one: Trace, other: Trace) -> None:
    for name in ("operations", "keys", "value_sizes", "times"):
        assert getattr(one, name).dtype == getattr(other, name).dtype
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    assert (one.events is None) == (other.events is None)
    if one.events is not None and other.events is not None:
        for name in ("keys", "times", "sides", "kinds"):
            mine, theirs = getattr(one.events, name), getattr(other.events, name)
            assert (mine is None) == (theirs is None)
            assert mine is None or mine.tolist() == theirs.tolist()
    assert dict(one.metadata) == dict(other.metadata)


@settings(max_examples=20)
@given(data=st.data(), pieces=st.integers(1, 4))
def test_what_is_written_is_read(tmp_path: Path, data: Any, pieces: int) -> None:
    parts, known = [], 0
    two = data.draw(st.booleans())
    for _ in range(pieces):
        operations = data.draw(st.lists(st.integers(0, 3), max_size=20))
        keys = []
        for _ in operations:
            keys.append(data.draw(st.integers(0, known)))
            known = max(known, keys[-1] + 1)
        sizes = [data.draw(st.integers(0, 1 << 31 - 1)) if one in (1, 2) else 0 for one in operations]
        rows = data.draw(st.integers(0, 30))
        sides = np.zeros(rows, np.uint8) if two else None
        events = Events(np.arange(rows) - 5, np.arange(rows) * -3, sides, sides)
        parts.append(trace(operations, keys, sizes, events, workload="w", place="line\nbreak ü"))
    path = tmp_path / "t.parquet"
    with TraceWriter(path) as writer:
        for part in parts:
            writer.write(part)
    same(read_trace(path), joined(parts))
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


def test_a_trace_without_events_or_accesses(tmp_path: Path) -> None:
    for one in (trace([0], [0], [0]), trace([], [], [])):
        write_trace(tmp_path / "t.parquet", one)
        same(read_trace(tmp_path / "t.parquet"), one)


def test_shuffled_keeps_accesses_and_can_be_kept(tmp_path: Path) -> None:
    complete = trace([0, 1] * 50, sorted(list(range(50)) * 2), [0, 10] * 50, workload="x")
    mixed = complete.shuffled(3)
    rows = lambda one: sorted(zip(one.operations, one.keys, one.value_sizes, one.times))  # noqa: E731
    assert rows(mixed) == rows(complete) and mixed.keys.tolist() != complete.keys.tolist()
    assert mixed.keys.tolist() == complete.shuffled(3).keys.tolist() != complete.shuffled(4).keys.tolist()
    write_trace(tmp_path / "t.parquet", mixed)
    same(read_trace(tmp_path / "t.parquet"), mixed)


def test_an_error_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_trace(path, SMALL)
    with pytest.raises(RuntimeError), TraceWriter(path) as writer:
        writer.write(trace([0], [0], [0]))
        raise RuntimeError
    same(read_trace(path), SMALL)
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


def damaged(path: Path, change: Any) -> None:
    write_trace(path, SMALL)
    metadata = pq.read_metadata(path).metadata
    table = change(pq.read_table(path))
    pq.write_table(table.replace_schema_metadata({**metadata, **(table.schema.metadata or {})}), path)


def column(name: str, values: list[Any], kind: Any = None) -> Any:
    def change(table: Any) -> Any:
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(values, kind or table.schema.field(name).type))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["key"]), r"t\.parquet has no column 'key'"),
        (lambda table: table.drop_columns(["event_time"]), "has no column 'event_time'"),
        (column("time", ["a", "b", "c", "d"], pa.string()), "column 'time' of .* is of type string, not int64"),
        (column("operation", [0, 1, 4, 3]), r"row 2 of .*t\.parquet: operation is 4"),
        (column("key", [0, -1, 1, 1]), "row 1 of .*: key is -1"),
        (column("key", [0, 0, 1, 2]), "row 3 of .*: key is 2, but the 2 keys"),
        (column("key", [0, 0, 0, 0]), "column 'key' of .* has 1 of its 2 state keys"),
        (column("value_size", [0, 1, -2, 0]), "row 2 of .*: value_size is -2"),
        (column("value_size", [0, 1, 2, 8]), "row 3 of .*: value_size is 8, but get and delete write nothing"),
        (column("time", [0, 1, 2, None]), "column 'time' of .* ends after row 2"),
        (lambda table: table.replace_schema_metadata({"gadget.format": "99"}), "no trace of format 1: it says '99'"),
    ],
)
def test_damage_is_named(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "t.parquet"
    damaged(path, change)
    with pytest.raises(TraceError, match=message):
        read_trace(path)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace"):
        read_trace(tmp_path / "none.parquet")
    with pytest.raises(TraceError, match="there is no folder"):
        write_trace(tmp_path / "none" / "t.parquet", SMALL)
    path = tmp_path / "t.parquet"
    write_trace(path, SMALL)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match="cannot be read as a trace"):
        read_trace(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(TraceError, match="tailrace gadget import"):
        read_trace(path)


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255))
def test_a_wrong_byte_is_refused_or_changes_no_access(tmp_path: Path, place: float, byte: int) -> None:
    path = tmp_path / "t.parquet"
    write_trace(path, SMALL)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= byte
    path.write_bytes(content)
    try:
        found = read_trace(path)
    except TraceError:
        return
    for name in ("operations", "keys", "value_sizes", "times"):  # the wrong byte is in metadata, or in nothing of use
        assert getattr(found, name).tolist() == getattr(SMALL, name).tolist()


def test_key_bytes() -> None:
    assert SMALL.key_bytes == 12 and trace([], [], []).key_bytes == 10
    with pytest.raises(TraceError, match="key_bytes = 'long'"):
        _ = trace([], [], [], key_bytes="long").key_bytes
