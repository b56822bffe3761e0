"""State read as a table is what the query means: for every kind of operator, through crashes of servers, compactions
and any number of them, at every epoch that is kept.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.crash.recovery import frames_of, set_times
from support.crash.recovery_kinds import KINDS, LONG, SHARDS, Script, script_of, spec_of
from support.crash.saved_states import save
from support.models.kept_state import MODELS, Kept, shown
from tailrace.operators.base import Operator
from tailrace.operators.registry import operator_of
from tailrace.operators.spec import OperatorSpec
from tailrace.state_table.checkpoint import SavedState, open_state
from tailrace.state_table.operator_state import SHARD
from tailrace.testing.compare import rows_of

EPOCHS = 8
EXAMPLES = 20 if os.environ.get("TAILRACE_TEST_LONG") == "1" else 1


@pytest.fixture(scope="module")
def scratch() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def seeds() -> Iterator[int]:
    given = os.environ.get("TAILRACE_TEST_SEED")
    for seed in [int(given)] if given else [random.randrange(2**32) for _ in range(EXAMPLES)]:
        print(f"TAILRACE_TEST_SEED={seed}")
        yield seed


def kept(table: pa.Table) -> Kept:
    return shown(rows_of(table.drop_columns([SHARD])))


PARAMETERS = [pytest.param(kind, marks=pytest.mark.long) if kind in LONG else kind for kind in KINDS]


@pytest.mark.parametrize("kind", PARAMETERS)
def test_state_is_what_the_query_means(kind: str, scratch: str, tmp_path: Path) -> None:
    spec = spec_of(kind)
    for number, seed in enumerate(seeds()):
        script = script_of(spec, seed, EPOCHS)
        save(spec, script, str(tmp_path / str(number)), scratch, seed)
        state = open_state(str(tmp_path / str(number)))
        assert state.epoch == EPOCHS - 1 and len(state.epochs) > 1
        for epoch in state.epochs if kind in MODELS else ():
            wanted, found = shown(MODELS[kind](script, epoch)), kept(state.at(epoch)[spec.name].table())
            assert found == wanted, f"epoch {epoch}: missing {wanted - found}, too many {found - wanted}"
        wanted, found = undisturbed_state(spec, script, scratch, state), kept(state[spec.name].table())
        assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"
        check_keys(state, spec)
        check_changes(state, spec)
        assert state[spec.name].as_records().table().schema.names[-1] == SHARD


def undisturbed_state(spec: OperatorSpec, script: Script, folder: str, state: SavedState) -> Kept:
    """Made of the deltas of one operator with all shards, without a checkpoint: of kinds that have no model, too."""
    operator: Operator = operator_of(spec, range(SHARDS), memory_bytes=10**9, folder=folder)
    sections: dict[int, list[pa.RecordBatch]] = {}
    for epoch in range(EPOCHS):
        set_times(operator, script, epoch)
        operator.apply(epoch, frames_of(spec, script, epoch))
        list(operator.advance(epoch, script.marks[epoch], script.marks[epoch + 1]))
        for shard, batch in operator.delta(epoch).items():
            sections.setdefault(shard, []).append(batch)
        operator.forget(epoch)
    horizon = operator.horizon
    operator.close()
    shown_rows = [batch for shard, own in sections.items() for batch in state[spec.name].shown(shard, own, horizon)]
    return kept(pa.Table.from_batches(shown_rows, state[spec.name].schema))


def check_keys(state: SavedState, spec: OperatorSpec) -> None:
    """Rows of some keys are those of all rows that have these keys, and keys that are not there have none."""
    operator = state[spec.name]
    table, names = operator.table(), list(operator.keys)
    rows = rows_of(table)
    chosen = rows[:: max(1, len(rows) // 3)]
    wanted = [row for row in rows if any(all(row[name] == one[name] for name in names) for one in chosen)]
    keys = table.select(names).take(list(range(0, len(rows), max(1, len(rows) // 3))))
    assert shown(rows_of(operator.table(keys=keys))) == shown(wanted)
    unknown = {name: ["no such key" if name == "k" else 77] for name in names}
    assert operator.table(keys=unknown).num_rows == 0


def check_changes(state: SavedState, spec: OperatorSpec) -> None:
    """They make the rows of the one epoch those of the other, and say nothing of what stayed."""
    for since in state.epochs[:-1]:
        changes = state.changes(spec.name, since)
        identity = state[spec.name].identity
        said = rows_of(changes.table())
        words = [row.pop("_change") for row in said]
        before = rows_of(state.at(since)[spec.name].table())
        gone = [row for row, word in zip(said, words, strict=True) if word == "removed"]
        new = [row for row, word in zip(said, words, strict=True) if word == "inserted"]
        updated = [row for row, word in zip(said, words, strict=True) if word == "updated"]
        names = {repr([row[name] for name in identity]) for row in updated}
        old = [row for row in before if identity and repr([row[name] for name in identity]) in names]
        assert len(old) == len(updated) and not shown(old) & shown(updated)
        assert not shown(gone) - shown(before) and not (shown(gone) & shown(new) if not identity else None)
        after = shown(before) - shown(gone) - shown(old) + shown(new) + shown(updated)
        assert after == shown(rows_of(state[spec.name].table()))
