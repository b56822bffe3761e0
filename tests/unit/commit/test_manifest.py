"""Manifest changes: applied where their preconditions hold, refused where not."""

from __future__ import annotations

import json

import pytest

from tailrace.commit.manifest import (
    EMPTY,
    Compaction,
    Manifest,
    StaleCompaction,
    add_delta,
    apply_compaction,
    next_objects,
)
from tailrace.commit.objects import ObjectRef

RUN = "0123456789abcdef"


def ref(name: str, first: int, last: int, *shards: tuple[int, int]) -> ObjectRef:
    return ObjectRef(f"objects/{name}", first, last, shards or ((0, 8),), 100, (("op", None),))


A, B, C = ref("a", 0, 0), ref("b", 1, 1), ref("c", 2, 2)


def test_json_round_trip() -> None:
    manifest = Manifest(
        epoch=4,
        run=RUN,
        try_=1,
        objects=(ref("a", 0, 3), ref("b", 4, 4, (0, 2), (5, 6))),
        watermarks={"op": {"max": 7}},
        rows={"input": 3, "late": 1},
        epoch_config={"combine": True},
        horizons={"op": -5},
        plan="abc",
        number=9,
        parent=8,
        floor=3,
    )
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json())), 9) == manifest
    compact = Compaction((ref("x", 0, 2), ref("y", 3, 3)), ref("a", 0, 3))
    assert Compaction.from_json(json.loads(json.dumps(compact.to_json()))) == compact


def test_a_compaction_takes_its_shards_out_of_what_it_replaces() -> None:
    objects = (ref("a", 0, 0), ref("b", 1, 1), ref("c", 2, 2))
    half = apply_compaction(objects, Compaction(objects[:2], ref("f", 0, 1, (0, 4))))
    assert {each.name: each.shards for each in half} == {
        "objects/a": ((4, 8),),
        "objects/b": ((4, 8),),
        "objects/c": ((0, 8),),
        "objects/f": ((0, 4),),
    }
    complete = apply_compaction(half, Compaction(objects[:2], ref("g", 0, 1, (4, 8))))
    assert [each.name for each in complete] == ["objects/f", "objects/g", "objects/c"]


@pytest.mark.parametrize(
    ("compact", "why"),
    [
        (Compaction((A, B), ObjectRef("objects/f", 0, 1, (), 100, (("op", None),))), "no shard"),
        (Compaction((A, ref("x", 0, 0)), ref("f", 0, 0)), "objects/x is not listed"),
        (Compaction((A,), ref("f", 0, 1)), "made without it"),
        (Compaction((A, B), ref("f", 0, 0)), "reaches beyond"),
        (Compaction((A, C), ref("f", 0, 2)), "made without it"),
        (Compaction((A,), ref("a", 0, 0)), "already listed"),
        (Compaction((ref("a", 0, 0, (0, 9)),), ref("f", 0, 0, (0, 9))), "compacted otherwise"),
        (Compaction((), ref("f", 5, 5)), "nothing is left"),
    ],
)
def test_a_compaction_that_does_not_fit_is_refused_and_left_out(compact: Compaction, why: str) -> None:
    objects = (A, B, C)
    with pytest.raises(StaleCompaction, match=why):
        apply_compaction(objects, compact)
    before = Manifest(epoch=2, run=RUN, try_=0, objects=objects)
    assert next_objects(before, 3, [], [compact]) == (objects, ())


def test_deltas_must_be_of_their_epoch_and_their_own_shards() -> None:
    assert add_delta((), ref("a", 0, 0, (0, 4)), 0) == (ref("a", 0, 0, (0, 4)),)
    with pytest.raises(ValueError, match="not epoch 1"):
        add_delta((), ref("a", 0, 0), 1)
    with pytest.raises(ValueError, match="both hold epoch 0"):
        add_delta((ref("a", 0, 0, (0, 4)),), ref("b", 0, 0, (3, 8)), 0)
    with pytest.raises(ValueError, match="already listed"):
        add_delta((ref("a", 0, 0),), ref("a", 1, 1), 1)
    with pytest.raises(ValueError, match="cannot follow"):
        next_objects(EMPTY, 1, [], [])


def test_living_objects_are_those_of_which_the_horizons_leave_something() -> None:
    ended, open_, ageless = (
        ObjectRef(f"objects/{name}", 0, 0, ((0, 8),), 1, (("op", max_pane),))
        for name, max_pane in (("ended", 4), ("open", 5), ("ageless", None))
    )
    manifest = Manifest(epoch=1, run=RUN, try_=0, objects=(ended, open_, ageless), horizons={"op": 5})
    assert manifest.living == (open_, ageless)
