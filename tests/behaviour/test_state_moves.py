"""State that goes elsewhere: savepoint, copy, other shards, a start there. Rows are as if nothing had been."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from support.crash import recovery
from support.crash.recovery import Logs, live, undisturbed
from support.crash.recovery_kinds import KINDS, Script, script_of, spec_of
from tailrace.commit.manifest import Manifest
from tailrace.commit.resharding import Change, reshard
from tailrace.commit.savepoints.moving import copy_savepoint, restore_savepoint
from tailrace.commit.savepoints.savepoint import Savepoint, savepoints
from tailrace.env.stores.local_store import LocalStore
from tailrace.operators.registry import compact_sections
from tailrace.operators.spec import OperatorSpec
from tailrace.state_table.operator_state import SHARD, OperatorState
from tailrace.testing.compare import rows_of

EPOCHS = 8


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield str(tmp_path_factory.mktemp("scratch"))


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_goes_on_elsewhere(kind: str, scratch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(2**32)
    print(f"{seed=}")
    rng, spec = random.Random(seed), spec_of(kind)
    script, cut = script_of(spec, seed, EPOCHS), rng.randint(1, EPOCHS - 1)
    before = Script(script.batches[:cut], script.marks[: cut + 1])
    here, far, there = (LocalStore(tmp_path / name) for name in ("here", "far", "there"))
    manifest = live(spec, before, here, Logs(), scratch, rng)
    plan, files = {"query": spec.name}, {f"{log}/{cut - 1}": b"v1\n{}" for log in ("offsets", "commits")}
    saved = Savepoint("savepoints/a-00000000.json", "a", "", "", here.uri, plan, manifest, files)
    copy_savepoint(here, saved, far)
    restored = restore_savepoint(far, savepoints(far)[0], there)
    assert rows(there, restored, spec) == rows(here, manifest, spec)

    logs, wanted = Logs(list(range(cut)), list(range(cut))), undisturbed(spec, script, scratch)
    for shards in rng.sample((3, 4, 12, 16, 24), 2):
        change = Change(spec.shards, shards, plan, plan, compacting(spec))
        spec = replace(spec, shards=shards)
        again = reshard(there, logs, change)
        assert rows(there, again, spec) == rows(here, manifest, spec_of(kind))
    monkeypatch.setattr(recovery, "SHARDS", spec.shards)
    live(spec, script, there, logs, scratch, rng)
    assert [logs.sink[epoch] for epoch in range(cut, EPOCHS)] == wanted[cut:]


def compacting(spec: OperatorSpec):  # type: ignore[no-untyped-def]
    def compact(_: str, batches: list[pa.RecordBatch], horizon: int, complete: bool) -> pa.RecordBatch:
        return compact_sections(spec, batches, horizon, complete=complete)

    return compact


def rows(store: LocalStore, manifest: Manifest, spec: OperatorSpec) -> list[str]:
    table = OperatorState(store, manifest, spec, {}).table()
    return sorted(repr(row) for row in rows_of(table.drop_columns([SHARD])))
