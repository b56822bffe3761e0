"""One shard's table against a dictionary: merging, replacing, removing, evicting, undoing, compacting, in any order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.state.hash_table.table import Table
from tailrace.state.layout import HASH, PANE, Merge, record_layout
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.sections import from_section, to_section
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", STRING)], [(Merge.ADD, BIGINT), (Merge.MAX, STRING)], ansi=False)
FOREVER = 2**63 - 1

keys = st.sampled_from(["", "a", "b", "ab", "x" * 300, None])
partial = st.tuples(keys, st.integers(0, 4), st.integers(-5, 5), st.one_of(st.none(), st.text(max_size=400)))
step = st.one_of(
    st.tuples(st.just("merge"), st.lists(partial, max_size=40), st.booleans()),
    st.tuples(st.just("expire"), st.integers(0, 5)),
    st.tuples(st.just("remove"), st.sets(st.tuples(keys, st.integers(0, 4)))),
    st.tuples(st.just("undo")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("begin")),
)


_CHANGES = ("merge", "remove", "expire")


def rows_of(partials: list[tuple]) -> Rows:
    builder = RowsBuilder(len(partials), LAYOUT)
    # All keys share one hash: only comparing the keys themselves can tell them apart.
    builder.words[:, HASH] = -3
    builder.words[:, PANE] = [p[1] for p in partials]
    key, total, largest = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array([p[0] for p in partials], pa.string()), STRING, key.word, key.bit)
    builder.put(pa.array([p[2] for p in partials], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array([p[3] for p in partials], pa.string()), STRING, largest.word, largest.bit)
    return builder.finish()


def content(table: Table) -> dict[tuple, tuple]:
    rows = table.copy(table.rows_of(table.panes(FOREVER)))
    batch = to_section(rows, LAYOUT)
    again = to_section(from_section(batch, LAYOUT), LAYOUT)
    assert again.equals(batch)
    out = {}
    for row in batch.to_pylist():
        key = (row["k0"], row["__pane"])
        assert key not in out
        out[key] = (row["a0"], row["a1"])
    return out


def row_numbers(table: Table) -> dict[tuple, int]:
    rows = table.rows_of(table.panes(FOREVER))
    batch = to_section(table.copy(rows), LAYOUT)
    keys = zip(batch["k0"].to_pylist(), batch["__pane"].to_pylist(), strict=True)
    return dict(zip(keys, rows.tolist(), strict=True))


def merged(old: tuple | None, total: int, largest: str | None) -> tuple:
    if old is None:
        return total, largest
    both = [value.encode() for value in (old[1], largest) if value is not None]
    return old[0] + total, max(both).decode() if both else None


@settings(max_examples=150, deadline=None)
@given(st.lists(step, max_size=25))
def test_equals_a_dictionary(steps: list[tuple]) -> None:
    table = Table(LAYOUT, stagger=3)
    model: dict[tuple, tuple] = {}
    history: list[dict[tuple, tuple]] = []
    evicted = False
    for action, *arguments in steps:
        # An epoch merges, then evicts: after evicting, merging needs a new log.
        if action == "begin" or (action in _CHANGES and not history) or (action == "merge" and evicted):
            table.begin(0)
            history.append(dict(model))
            evicted = False
        if action == "merge":
            partials, replace = arguments
            rows = rows_of(partials)
            table.merge(rows.words, rows.heap, 0, len(rows), replace=replace)
            for key, pane, total, largest in partials:
                old = None if replace else model.get((key, pane))
                model[key, pane] = merged(old, total, largest)
        elif action == "remove":
            doomed = [key for key in model if key in arguments[0]]
            numbers = row_numbers(table)
            before = set(table.changed_rows().tolist())
            table.remove(np.array([numbers[key] for key in doomed], np.int64))
            assert set(table.changed_rows().tolist()) == before - {numbers[key] for key in doomed}
            model = {key: value for key, value in model.items() if key not in doomed}
        elif action == "expire":
            table.expire(table.panes(arguments[0]))
            model = {key: value for key, value in model.items() if key[1] >= arguments[0]}
            evicted = True
        elif action == "undo" and history:
            table.undo()
            model = history.pop()
            evicted = True
        elif action == "forget" and history:
            table.forget()
            history.pop(0)
        elif action == "compact":
            table.compact()
        assert content(table) == model
        assert table.rows == len(model)
    while history:
        table.undo()
        model = history.pop()
        assert content(table) == model


def test_growing_keeps_every_record() -> None:
    layout = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
    table = Table(layout)
    words = np.zeros((100_000, layout.words), np.int64)
    words[:, HASH] = np.arange(100_000) // 7  # neighbours share a hash
    words[:, 2] = 3
    words[:, 3] = np.arange(100_000)
    words[:, 4] = 1
    for _ in range(2):
        table.begin(len(words))
        table.merge(words, np.empty(0, np.uint8), 0, len(words))
    assert table.rows == 100_000
    found = table.copy(table.rows_of(table.panes(FOREVER)))
    assert sorted(found.words[:, 3]) == list(range(100_000))
    assert set(found.words[:, 4]) == {2}
    table.undo()
    assert set(table.copy(table.rows_of(table.panes(FOREVER))).words[:, 4]) == {1}
    table.undo()
    assert table.rows == 0


def test_removed_rows_are_used_again() -> None:
    """However many records come and go, in panes of which some stay, the room for them does not grow."""
    layout = record_layout([Field("k", BIGINT)], [(Merge.ADD, BIGINT)], ansi=False)
    table = Table(layout)
    room = []
    for epoch in range(60):
        words = np.zeros((500, layout.words), np.int64)
        words[:, HASH] = words[:, 3] = np.arange(500) + 500 * epoch
        words[:, PANE] = np.arange(500) % 7
        words[:, 2] = 3
        table.begin(len(words))
        if epoch:
            old = table.rows_of(table.panes(FOREVER))
            born = table.copy(old).words[:, 3]
            table.remove(old[(born >= 500 * (epoch - 1)) & (born % 100 > 0)])
        table.merge(words, np.empty(0, np.uint8), 0, len(words))
        if epoch >= 2:
            table.forget()
        room.append(table.nbytes)
        assert table.rows == 500 + 5 * epoch
    assert room[-1] <= 2 * room[5]


def test_only_records_can_be_removed() -> None:
    table = Table(LAYOUT)
    rows = rows_of([("a", 0, 1, None), ("b", 0, 1, "x")])
    table.begin(2)
    table.merge(rows.words, rows.heap, 0, 2)
    table.begin(0)
    with pytest.raises(ValueError, match="holds no record"):
        table.remove(np.array([0, 1, 0]))
    table.undo()
    assert content(table) == {("a", 0): (1, None), ("b", 0): (1, "x")}
