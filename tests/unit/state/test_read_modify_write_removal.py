"""A store that removes single records, against a dictionary: epochs, undo, expiry, deltas, compaction, restoring."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.ids import MIN_MICROS
from tailrace.state.layout import HASH, PANE, Merge, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.builder import RowsBuilder
from tailrace.state.rows.rows import Rows
from tailrace.state.sections.compaction import compact_records
from tailrace.state.sections.sections import to_section
from tailrace.types import BIGINT, DataType, Field

STRING = DataType("string")
LAYOUT = record_layout([Field("k", STRING)], [(Merge.ADD, BIGINT), (Merge.MAX, STRING)], ansi=False)
SHARDS = 2
Key = tuple[str | None, int]
Model = dict[Key, tuple[int, str | None]]

keys = st.tuples(st.sampled_from(["", "a", "b", "ab", "x" * 50, None]), st.integers(0, 3))
partial = st.tuples(keys, st.integers(-5, 5), st.one_of(st.none(), st.text(max_size=9)))
epoch_steps = st.tuples(
    st.lists(partial, max_size=12),
    st.sets(keys, max_size=6),
    st.sampled_from([None, None, None, 1, 2]),
    st.sampled_from(["commit", "commit", "commit", "retry", "undo two"]),
)


def shard_of(key: Key) -> int:
    return len(key[0] or "") % SHARDS


def frame(partials: list[tuple[Key, int, str | None]]) -> tuple[Rows, np.ndarray]:
    partials = sorted(partials, key=lambda each: shard_of(each[0]))
    builder = RowsBuilder(len(partials), LAYOUT)
    builder.words[:, HASH] = [shard_of(each[0]) for each in partials]
    builder.words[:, PANE] = [each[0][1] for each in partials]
    key, total, largest = LAYOUT.keys[0], *LAYOUT.accumulators
    builder.put(pa.array([each[0][0] for each in partials], pa.string()), STRING, key.word, key.bit)
    builder.put(pa.array([each[1] for each in partials], pa.int64()), BIGINT, total.word, total.bit)
    builder.put(pa.array([each[2] for each in partials], pa.string()), STRING, largest.word, largest.bit)
    shards = [shard_of(each[0]) for each in partials]
    return builder.finish(), np.searchsorted(shards, np.arange(SHARDS + 1)).astype(np.int64)


def content(store: ReadModifyWriteStore) -> Model:
    found: Model = {}
    for _, table in store.tables():
        batch = to_section(table.copy(table.rows_of(table.panes(2**63 - 1))), LAYOUT)
        for row in batch.to_pylist():
            key = (row["k0"], row["__pane"])
            assert key not in found
            found[key] = (row["a0"], row["a1"])
    return found


def remove(store: ReadModifyWriteStore, doomed: Iterable[Key]) -> None:
    for shard, table in store.tables():
        rows = table.rows_of(table.panes(2**63 - 1))
        batch = to_section(table.copy(rows), LAYOUT)
        there = list(zip(batch["k0"].to_pylist(), batch["__pane"].to_pylist(), strict=True))
        store.remove(shard, rows[[key in doomed for key in there]])


def merge(model: Model, partials: list[tuple[Key, int, str | None]]) -> Model:
    model = dict(model)
    for key, total, largest in partials:
        before, words = model.get(key, (0, None))
        both = [value.encode() for value in (words, largest) if value is not None]
        model[key] = (before + total, max(both).decode() if both else None)
    return model


def restored(deltas: list[dict[int, pa.RecordBatch]], horizon: int, compactions: list[int]) -> ReadModifyWriteStore:
    """From the deltas, after compacting adjacent ones as cut by ``folds``."""
    store = ReadModifyWriteStore(LAYOUT, range(SHARDS), removes=True)
    cuts = sorted({0, len(deltas), *(cut % (len(deltas) + 1) for cut in compactions)})
    for shard in range(SHARDS):
        batches = []
        for low, high in itertools.pairwise(cuts):
            some = [delta[shard] for delta in deltas[low:high] if shard in delta]
            # What begins with the first delta has nothing older: there, tombstones can go.
            compacted = compact_records(LAYOUT, some, MIN_MICROS, bury=low == 0)
            assert low > 0 or compacted["a0"].null_count == 0
            batches.append(compacted)
        store.restore(shard, batches, horizon)
    return store


@settings(max_examples=120, deadline=None, print_blob=True)
@given(st.lists(epoch_steps, min_size=1, max_size=9), st.lists(st.integers(0, 20), max_size=3))
def test_equals_a_dictionary(epochs: list[tuple], compactions: list[int]) -> None:
    store = ReadModifyWriteStore(LAYOUT, range(SHARDS), threads=1, removes=True)
    models: list[tuple[Model, int]] = [({}, MIN_MICROS)]  # after each epoch: content, horizon
    deltas: list[dict[int, pa.RecordBatch]] = []
    undoable = 0

    def run(epoch: int, partials: list, doomed: set[Key], horizon: int | None) -> tuple[Model, int]:
        model, past = models[-1]
        partials = [each for each in partials if each[0][1] >= past]
        store.merge(epoch, [frame(partials)])
        model = merge(model, partials)
        remove(store, doomed)
        model = {key: value for key, value in model.items() if key not in doomed}
        if horizon is not None:
            store.expire(horizon)
            past = max(past, horizon)
            model = {key: value for key, value in model.items() if key[1] >= past}
        assert content(store) == model
        assert store.rows == len(model)
        return model, past

    for partials, doomed, horizon, ending in epochs:
        epoch = len(deltas)
        if ending == "retry":
            run(epoch, partials, doomed, horizon)
            store.undo(epoch)
            assert content(store) == models[-1][0]
        models.append(run(epoch, partials, doomed, horizon))
        deltas.append(store.delta())
        undoable = min(2, undoable + 1)
        if ending == "undo two" and undoable == 2:
            del models[-2:], deltas[-2:]
            store.undo(epoch - 1)
            undoable = 0
            assert content(store) == models[-1][0]
            assert store.horizon == models[-1][1]
        again = restored(deltas, models[-1][1], compactions)
        assert content(again) == models[-1][0]
    store.close()


def test_a_store_not_made_for_it_refuses() -> None:
    store = ReadModifyWriteStore(LAYOUT, range(SHARDS), threads=1)
    store.merge(0, [frame([(("a", 0), 1, None)])])
    with pytest.raises(ValueError, match="not made to remove"):
        store.remove(1, np.array([0]))
