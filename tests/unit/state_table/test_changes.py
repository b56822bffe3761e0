"""What became of rows between two epochs: numbers of rows, large shards in pieces, and what is not there."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tailrace as tr
from support.crash.recovery_kinds import script_of, spec_of
from support.crash.saved_states import save
from tailrace.commit import shard_pieces
from tailrace.errors import CheckpointError
from tailrace.state_table.checkpoint import SavedState
from tailrace.state_table.row_codes import codes_of
from tailrace.state_table.sql import sql
from tailrace.testing.compare import rows_of

TYPES = {
    "number": (pa.int64(), st.integers(0, 3)),
    "double": (pa.float64(), st.sampled_from([0.5, 1.5, math.nan])),
    "text": (pa.string(), st.sampled_from(["", "a", "ab"])),
    "list": (pa.list_(pa.string()), st.lists(st.sampled_from(["a", "b", None]), max_size=3)),
    "struct": (pa.struct({"x": pa.int64(), "y": pa.list_(pa.int64())}), st.just({"x": 1, "y": [1]})),
    "map": (pa.map_(pa.string(), pa.int64()), st.sampled_from([[], [("a", 1)], [("a", None)], [("b", 1)]])),
    "lists": (pa.list_(pa.list_(pa.int64())), st.lists(st.lists(st.integers(0, 1), max_size=2), max_size=2)),
}


@settings(max_examples=40)
@given(st.data())
def test_equal_rows_have_equal_numbers(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3))
    count = data.draw(st.integers(0, 12))
    columns = [data.draw(st.lists(st.none() | TYPES[name][1], min_size=count, max_size=count)) for name in names]
    arrays = [pa.array(column, TYPES[name][0]) for name, column in zip(names, columns, strict=True)]
    rows = [repr(row) for row in zip(*columns, strict=True)]
    codes = codes_of(arrays, count).tolist()
    assert len(set(zip(rows, codes, strict=True))) == len(set(rows)) == len(set(codes))


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> SavedState:
    spec, folder = spec_of("rolling"), tmp_path_factory.mktemp("checkpoint")
    save(spec, script_of(spec, 5, 8), str(folder / "tailrace"), str(tmp_path_factory.mktemp("scratch")), 5)
    return tr.state.open(str(folder))


def test_a_large_shard_comes_in_pieces(state: SavedState, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = state.changes("aggregate", since=state.epochs[0]).table()
    monkeypatch.setattr(shard_pieces, "PIECE_ROWS", 2)
    changes = state.changes("aggregate", since=state.epochs[0])
    assert Counter(map(repr, rows_of(changes.table()))) == Counter(map(repr, rows_of(whole)))
    assert len(list(changes.batches())) > len({*whole.column("_shard").to_pylist()}), "nothing was cut"


def test_some_keys(state: SavedState) -> None:
    changes = state.changes("aggregate", since=state.epochs[0])
    rows = rows_of(changes.table())
    key = rows[0]["k"]
    assert rows_of(changes.table(keys={"k": [key]})) == [row for row in rows if row["k"] == key]
    assert changes.table(shards=[rows[0]["_shard"]]).num_rows < len(rows)


def test_nothing_has_changed_within_an_epoch(state: SavedState) -> None:
    assert state.changes("aggregate", since=state.epoch).table().num_rows == 0


def test_an_epoch_that_is_not_kept(state: SavedState) -> None:
    with pytest.raises(CheckpointError, match="Epoch 1 is not kept"):
        state.changes("aggregate", since=1)


def test_sql_has_a_table_of_changes(state: SavedState) -> None:
    changes = state.changes("aggregate", since=state.epochs[0])
    with sql(state, "SELECT _change, count(*) AS n FROM aggregate_changes GROUP BY 1", since=state.epochs[0]) as found:
        counts = {row["_change"]: row["n"] for row in found.read_all().to_pylist()}
    assert counts == Counter(changes.table().column("_change").to_pylist())


def test_metadata_lists_operators_and_epochs(state: SavedState) -> None:
    rows = state.metadata().to_pylist()
    assert [row["epoch"] for row in rows] == list(reversed(state.epochs))
    assert rows[0]["operator"] == "aggregate" and rows[0]["keys"] == ["k"] and rows[0]["bytes"] > 0
    assert rows[0]["columns"][0] == "k: string"
