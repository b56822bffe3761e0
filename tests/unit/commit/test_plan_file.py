"""The stored plan."""

from __future__ import annotations

import pytest

from tailrace.commit.plan_file import plan_digest, read_plan, refuse_other_plan, write_plan
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, CorruptionError


def test_written_once_and_read_back(tmp_path) -> None:
    store = LocalStore(tmp_path)
    assert read_plan(store) is None
    write_plan(store, {"shards": 64, "operators": [{"name": "a"}]})
    write_plan(store, {"operators": [{"name": "a"}], "shards": 64})
    assert read_plan(store) == {"shards": 64, "operators": [{"name": "a"}]}
    with pytest.raises(CheckpointError, match=r"plan\.json"):
        write_plan(store, {"shards": 32})
    write_plan(store, {"shards": 32}, replace=True)
    assert read_plan(store) == {"shards": 32}


def test_damage_is_found(tmp_path) -> None:
    store = LocalStore(tmp_path)
    write_plan(store, {"shards": 64})
    (tmp_path / "plan.json").write_bytes(store.get("plan.json").replace(b"64", b"65"))
    with pytest.raises(CorruptionError, match=r"plan\.json"):
        read_plan(store)


def test_differences_are_listed() -> None:
    refuse_other_plan({"a": 1}, {"a": 1})
    with pytest.raises(CheckpointError, match=r"a\.b was 1 and is 2; c was None and is 3"):
        refuse_other_plan({"a": {"b": 1}}, {"a": {"b": 2}, "c": 3})
    assert plan_digest({"a": 1, "b": 2}) == plan_digest({"b": 2, "a": 1}) != plan_digest({"a": 2, "b": 1})
