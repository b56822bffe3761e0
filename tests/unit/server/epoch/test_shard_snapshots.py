"""Shards that a server gives whole with an epoch: as they were after it, whatever comes later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from support.servers.fakes import OPERATOR, RUN, Bench, assignment, bench, durable, request
from tailrace.errors import FencedError
from tailrace.server.transport.epoch_messages import Request


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Bench]:
    made = bench(str(tmp_path))
    made.checkpoint.wanted = (0, 3)
    yield made
    made.engine.close()


def snapshotted(server: Bench, epoch: int) -> list[int] | None:
    """What came whole with a durable epoch."""
    server.engine.compact(Request(RUN, manifest=durable(epoch)))
    (told, whole) = server.checkpoint.snapshotted[-1]
    assert told == epoch
    if whole is None:
        return None
    assert whole.shards == (0, 3) and whole.horizons == {OPERATOR: len(whole.sections[OPERATOR][0])}
    return list(whole.sections[OPERATOR][0].column(0).to_pylist())


def test_what_is_in_a_shard_snapshot_is_the_state_after_its_epoch(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.run(1, 0, server.stage(1, 0, 8, 0, (2, 3)))
    server.run(2, 0, server.stage(2, 0, 9, 0, (4,)))  # seals epoch 1
    assert snapshotted(server, 1) == [1, 2, 3]
    assert snapshotted(server, 1) is None, "handed out once"
    assert snapshotted(server, 0) is None, "nobody needs an older one"


def test_what_an_epoch_changes_is_compared_with_what_is_held(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1, 2, 3)))
    server.engine.commit(request(0, 0))
    server.run(1, 0, server.stage(1, 0, 8, 0, (4,)))
    server.engine.commit(request(1, 0))
    server.run(2, 0)
    server.engine.commit(request(2, 0))
    assert server.checkpoint.asked == [(24, 24), (8, 32), (0, 0)]


def test_an_epoch_that_is_tried_again_gives_what_its_last_try_made(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.run(0, 1, server.stage(0, 1, 8, 0, (5,)))
    server.engine.commit(request(0, 1))
    assert snapshotted(server, 0) == [5]


def test_nothing_is_given_of_an_epoch_that_was_undone(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.engine.assign(assignment(-1, 1, (0, 1, 2, 3)))
    assert snapshotted(server, 0) is None


def test_nothing_is_given_after_shards_were_assigned_anew(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.engine.assign(assignment(0, 0, (0, 1, 2, 3)))
    assert snapshotted(server, 0) is None


@pytest.mark.parametrize("case", ["on disk", "does not pay"])
def test_nothing_is_given_where_that_is_no_way(server: Bench, case: str) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.operator.in_memory = case != "on disk"
    if case == "does not pay":
        server.checkpoint.wanted = None
    server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    server.engine.commit(request(1, 0))
    assert snapshotted(server, 1) is None


def test_an_epoch_does_not_fail_where_memory_is_too_short_for_a_copy(
    server: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(shards: Sequence[int]) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(server.operator, "whole", no_room)
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    assert server.engine.commit(request(0, 0)).delta is not None
    assert snapshotted(server, 0) is None


def test_a_forgotten_epoch_is_not_kept(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.commit(request(0, 0))
    server.engine.forget(request(0, 0))
    with pytest.raises(FencedError):
        server.engine.commit(request(0, 0))
    assert snapshotted(server, 0) is None
