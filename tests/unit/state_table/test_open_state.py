"""Opening a checkpoint to look into it: what is there, by which names, and what is said where something is not."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import tailrace as tr
from support.crash.recovery_kinds import SHARDS, script_of, spec_of
from support.crash.saved_states import save
from tailrace.commit.plan_file import read_plan, write_plan
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.state_table.operator_state import OperatorState


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its state inside: counts by key, of eight epochs."""
    spec, folder = spec_of("rolling"), tmp_path_factory.mktemp("checkpoint")
    save(spec, script_of(spec, 5, 8), str(folder / "tailrace"), str(tmp_path_factory.mktemp("scratch")), 5)
    return folder


def test_a_checkpoint_is_found_by_either_location(location: Path) -> None:
    by_checkpoint, by_state = tr.state.open(str(location)), tr.state.open(f"{location}/tailrace")
    assert by_checkpoint.operators == by_state.operators == ("aggregate",)
    assert by_checkpoint["aggregate"].table() == by_state["aggregate"].table()
    assert by_checkpoint.epoch == 7 and by_checkpoint.epochs[-1] == 7


def test_nothing_is_written(location: Path) -> None:
    before = sorted(location.rglob("*"))
    tr.state.open(str(location))["aggregate"].table()
    assert sorted(location.rglob("*")) == before


def test_names_are_the_users(location: Path) -> None:
    """Columns of a plain query have numbers for names, and the plan knows the user's."""
    store = LocalStore(location / "tailrace")
    plan = read_plan(store)
    assert plan is not None
    try:
        write_plan(store, {**plan, "names": {"k": "who", "count(1)": "n", "sum(v)": "n"}}, replace=True)
        operator = tr.state.open(str(location))["aggregate"]
        # Two that the user calls alike keep the names of the plan.
        assert operator.schema.names == ["who", "count(1)", "sum(v)", "max(s)", "first(v)", "_shard"]
        assert operator.keys == operator.identity == ("who",)
        some = operator.table().column("who").to_pylist()[:1]
        assert operator.table(keys={"who": some}).column("who").to_pylist() == some
    finally:
        write_plan(store, plan, replace=True)


def test_a_key_is_looked_for_in_its_shard_alone(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = tr.state.open(str(location))["aggregate"]
    table = operator.table()
    (key,), (shard,) = (table.column(name).to_pylist()[:1] for name in ("k", "_shard"))
    read: list[int] = []
    sections = OperatorState.sections
    monkeypatch.setattr(OperatorState, "sections", lambda self, shards: read.extend(shards) or sections(self, shards))
    assert operator.table(keys={"k": [key]}).num_rows == 1
    assert read == [shard]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"who": ["a"]}, "has the key columns k; got who"),
        ({"k": ["a"], "v": [1]}, "has the key columns k; got k, v"),
        ({"k": [1]}, "Key column k of operator aggregate is string"),
    ],
)
def test_keys_that_are_none(location: Path, keys: dict[str, list[object]], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        tr.state.open(str(location))["aggregate"].table(keys=keys)


def test_a_missing_location(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no state of a query at"):
        tr.state.open(str(tmp_path / "nothing"))
    assert not list(tmp_path.iterdir())


def test_an_epoch_that_was_cleaned(location: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Epoch 1 is not kept at .*: kept are .*7"):
        tr.state.open(str(location), epoch=1)


def test_an_epoch_that_is_cleaned_while_it_is_read(tmp_path: Path, location: Path) -> None:
    state = tr.state.open(str(_copy(location, tmp_path)))
    for path in [*(tmp_path / "tailrace" / "objects").iterdir(), *(tmp_path / "tailrace" / "log").iterdir()]:
        path.unlink()
    with pytest.raises(CheckpointError, match="Epoch 7 was cleaned"):
        state["aggregate"].table()


def test_a_wrong_operator(location: Path) -> None:
    with pytest.raises(CheckpointError, match="no operator 'counts' with state: it has aggregate"):
        tr.state.open(str(location))["counts"]


@pytest.mark.parametrize("where", ["rows", "index"])
def test_a_damaged_object(tmp_path: Path, location: Path, where: str) -> None:
    """It is named, and other shards can be read."""
    whole = tr.state.open(str(location))["aggregate"].table()
    needed = tr.state.open(str(_copy(location, tmp_path))).manifest.objects
    damaged = max((tmp_path / "tailrace" / each.name for each in needed), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[40 if where == "rows" else -20] ^= 255
    damaged.write_bytes(data)
    with pytest.raises(CorruptionError, match=damaged.name):
        tr.state.open(str(tmp_path))["aggregate"].table()
    state = tr.state.open(str(tmp_path), skip_damaged=True)
    left = state["aggregate"].table()
    (damage,) = state.damage
    assert damage.object == f"objects/{damaged.name}" and damage.shards
    lost = pa.compute.is_in(whole.column("_shard"), pa.array(damage.shards, pa.int32()))
    assert left == whole.filter(pa.compute.invert(lost))
    assert where == "index" or len(damage.shards) < SHARDS


def test_it_is_an_arrow_stream_that_can_be_read_again(location: Path) -> None:
    operator = tr.state.open(str(location))["aggregate"]
    assert pa.table(operator) == pa.table(operator) == operator.table()


def test_several_threads_may_read(location: Path) -> None:
    operator = tr.state.open(str(location))["aggregate"]
    found: list[pa.Table] = []
    threads = [threading.Thread(target=lambda: found.append(operator.table())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == operator.table() for each in found) and len(found) == 4


def test_the_door_shows_what_is_behind_it() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'close'"):
        tr.state.close  # noqa: B018
    assert tr.state.OperatorState is OperatorState


def _copy(location: Path, target: Path) -> Path:
    for path in (path for path in location.rglob("*") if path.is_file()):
        copy = target / path.relative_to(location)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return target
