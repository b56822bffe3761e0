"""The engine: at most once, tries and undo, fences, commits, moves of shards; with fakes in place of operators."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from support.servers.fakes import OPERATOR, RUN, Bench, assignment, bench, request
from tailrace.commit.objects import ObjectRef
from tailrace.errors import FencedError, StateServerError, SumOverflowError
from tailrace.ids import Attempt
from tailrace.server.checkpoint.deltas import Sealed
from tailrace.server.transport.epoch_messages import OutputTicket, Request
from tailrace.server.transport.stage_messages import CommittedAttempt


@pytest.fixture
def server(tmp_path: Path) -> Bench:
    return bench(str(tmp_path))


def emitted(server: Bench, epoch: int, try_: int, part: int = 0, parts: int = 1) -> list[int]:
    batches = server.engine.output(OutputTicket(RUN, OPERATOR, epoch, try_, part, parts))
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def test_steps_one_by_one(server: Bench) -> None:
    engine = server.engine
    second, first = server.stage(0, 0, 8, 1, (3,)), server.stage(0, 0, 7, 0, (1, 2))
    engine.prepare(request(0, 0, committed_attempts=(first, second)))
    applied = engine.apply(request(0, 0))
    assert (applied.rows, applied.updated) == (3, 3)
    info = engine.advance(request(0, 0))
    assert (info.batches, info.rows) == (3, 3)
    assert emitted(server, 0, 0) == [1, 2, 3]
    assert [emitted(server, 0, 0, part, 2) for part in range(2)] == [[1], [2, 3]]
    committed = engine.commit(request(0, 0))
    assert committed.delta is not None and committed.delta.name == "0-0"
    assert committed.horizons == {OPERATOR: 3}
    assert engine.status(request(0, 0)).rows == 3


def test_every_step_happens_once_however_often_it_is_asked_for(server: Bench) -> None:
    engine = server.engine
    committed_attempts = (server.stage(0, 0, 7, 0, (1, 2)),)
    for _ in range(2):
        engine.prepare(request(0, 0, committed_attempts=committed_attempts))
    assert engine.apply(request(0, 0)) == engine.apply(request(0, 0))
    assert engine.advance(request(0, 0)) == engine.advance(request(0, 0))
    engine.prepare(request(0, 0, committed_attempts=committed_attempts))
    assert engine.commit(request(0, 0)) == engine.commit(request(0, 0))
    assert server.run(0, 0, *committed_attempts, commit=True) == [1, 2]
    assert server.operator.applied == [0]
    assert server.operator.numbers == [1, 2]
    assert server.checkpoint.written == [Attempt(0, 0)]


def test_other_committed_attempts_for_a_prepared_try_are_refused(server: Bench) -> None:
    server.engine.prepare(request(0, 0, committed_attempts=(server.stage(0, 0, 7, 0, (1,)),)))
    with pytest.raises(StateServerError, match="other committed attempts"):
        server.engine.prepare(request(0, 0, committed_attempts=(CommittedAttempt(0, 8, 1, 1),)))


def test_steps_out_of_order_are_refused(server: Bench) -> None:
    with pytest.raises(StateServerError, match="not prepared"):
        server.engine.apply(request(0, 0))
    with pytest.raises(StateServerError, match="not applied"):
        server.engine.advance(request(0, 0))
    with pytest.raises(StateServerError, match="cannot be committed"):
        server.engine.commit(request(0, 0))
    with pytest.raises(StateServerError, match="cannot follow"):
        server.engine.prepare(request(2, 0, committed_attempts=()))


def test_a_new_try_first_undoes_the_old_one(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.run(1, 0, server.stage(1, 0, 8, 0, (2, 2)))
    assert server.operator.numbers == [1, 2, 2]
    assert server.run(1, 1, server.stage(1, 1, 9, 0, (3,))) == [3]
    assert server.operator.numbers == [1, 3]
    with pytest.raises(StateServerError, match="is gone"):
        emitted(server, 1, 0)


def test_a_new_try_undoes_a_commit_too_and_writes_its_own(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    server.run(0, 1, server.stage(0, 1, 8, 0, (2,)), commit=True)
    assert server.checkpoint.written == [Attempt(0, 0), Attempt(0, 1)]
    assert server.operator.numbers == [2]


def test_a_new_try_keeps_nothing_staged_by_the_old_one(server: Bench) -> None:
    old = server.stage(0, 0, 7, 0, (1,))
    server.engine.assign(assignment(-1, 1, (0, 1, 2, 3)))
    assert server.staging.staged_bytes == 0
    with pytest.raises(FencedError):
        server.stage(0, 0, 8, 0, (1,))
    with pytest.raises(StateServerError, match="rows missing"):
        server.run(0, 1, old)


def test_a_prepared_try_lets_go_of_its_rows_when_undone(server: Bench) -> None:
    server.engine.prepare(request(0, 0, committed_attempts=(server.stage(0, 0, 7, 0, (1,)),)))
    server.engine.assign(assignment(-1, 1, (0, 1, 2, 3)))
    assert server.staging.staged_bytes == 0


def test_fences_by_run_epoch_and_try(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    server.engine.forget(request(0, 0))
    server.run(1, 2, server.stage(1, 2, 8, 0, (2,)))
    for old in (
        request(1, 1, committed_attempts=()),
        request(0, 0, committed_attempts=()),
        request(0, 9, committed_attempts=()),
    ):
        for step in (server.engine.prepare, server.engine.apply, server.engine.advance, server.engine.commit):
            with pytest.raises(FencedError, match="is over"):
                step(old)
    other = Request(run="ffffffffffffffff", epoch=2, try_=0)
    for step in (
        server.engine.prepare,
        server.engine.forget,
        server.engine.assign,
        server.engine.status,
        server.engine.compact,
    ):
        with pytest.raises(FencedError, match="belongs to run"):
            step(other)
    assert server.operator.numbers == [1, 2]


def test_a_forgotten_epoch_is_over(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    server.engine.forget(request(0, 0))
    with pytest.raises(FencedError):
        server.engine.apply(request(0, 1))
    assert emitted(server, 0, 0) == [1], "a sink may still read it"
    with pytest.raises(StateServerError, match="cannot be forgotten"):
        server.engine.forget(request(1, 0))


def test_an_output_stays_until_the_next_advance(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.engine.prepare(request(1, 0, committed_attempts=(server.stage(1, 0, 8, 0, (2,)),)))
    server.engine.apply(request(1, 0))
    assert emitted(server, 0, 0) == [1]
    server.engine.advance(request(1, 0))
    assert emitted(server, 1, 0) == [2]
    with pytest.raises(StateServerError, match=r"is gone \(held: that of epoch 1 try 0\)"):
        emitted(server, 0, 0)


def test_a_large_output_is_not_inlined(server: Bench) -> None:
    committed_attempt = server.stage(0, 0, 7, 0, (1, 2))
    result = server.engine.run_epoch(request(0, 0, committed_attempts=(committed_attempt,), inline_bytes=8))
    assert result.batches is None
    assert emitted(server, 0, 0) == [1, 2]


def test_an_epoch_without_rows_writes_no_object(server: Bench) -> None:
    assert server.run(0, 0, commit=True) == []
    assert server.checkpoint.written == []
    assert server.run(1, 0, CommittedAttempt(0, 5, 0, 0), commit=True) == []


@pytest.mark.parametrize("where", ["fail_apply", "fail_advance"])
def test_a_step_that_fails_is_undone(server: Bench, where: str) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    setattr(server.operator, where, True)
    with pytest.raises(SumOverflowError, match="half-way"):
        server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    assert server.operator.numbers == [1]
    assert server.staging.staged_bytes == 0
    setattr(server.operator, where, False)
    with pytest.raises(StateServerError, match="not prepared"):
        server.engine.apply(request(1, 0))
    assert server.run(1, 1, server.stage(1, 1, 9, 0, (2,))) == [2]
    assert server.operator.numbers == [1, 2]


@pytest.mark.parametrize("where", ["fail_apply", "fail_advance"])
def test_a_step_that_fails_in_an_unknown_way_loses_the_state(server: Bench, where: str) -> None:
    """Memory may run out between any two changes: what is there then is not undone but loaded anew."""
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.operator.failure = MemoryError  # type: ignore[assignment]
    setattr(server.operator, where, True)
    with pytest.raises(StateServerError, match="MemoryError"):
        server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    with pytest.raises(StateServerError, match="assign"):
        server.run(1, 1, server.stage(1, 1, 9, 0, (2,)))


def test_rows_that_cannot_be_read_back_leave_the_state_as_it_was(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    frames = server.staging.frames

    def damaged(stages: object) -> object:
        raise StateServerError("came back damaged")

    server.staging.frames = damaged  # type: ignore[method-assign,assignment]
    with pytest.raises(StateServerError, match="damaged"):
        server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    server.staging.frames = frames  # type: ignore[method-assign]
    assert server.staging.staged_bytes == 0
    assert server.operator.numbers == [1]
    assert server.run(1, 1, server.stage(1, 1, 9, 0, (2,))) == [2]


def test_a_failed_undo_breaks_the_server_until_its_shards_are_assigned_anew(server: Bench) -> None:
    first = server.stage(0, 0, 7, 0, (1,))
    server.run(0, 0, first, commit=True)
    server.operator.fail_apply = server.operator.fail_undo = True
    with pytest.raises(StateServerError, match="could not be undone"):
        server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    with pytest.raises(StateServerError, match="has lost its state"):
        server.run(1, 1, server.stage(1, 1, 9, 0, (2,)))
    delta = server.checkpoint
    ref = delta.save(Attempt(0, 0), Sealed([], {OPERATOR: {0: delta.stored["0-0"]}}, {}))
    server.engine.assign(assignment(0, 2, (0, 1), ref))
    assert server.operator.numbers == [1]
    assert server.operator.shards == {0, 1}
    assert server.run(1, 2, server.stage(1, 2, 10, 0, (2,))) == [2]


def test_assigning_keeps_what_is_there_loads_what_is_missing_and_undoes(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    server.stage(1, 1, 9, 0, (3,))
    server.engine.assign(assignment(0, 1, (0, 1, 7)))
    assert server.operator.numbers == [1]
    assert server.operator.restored == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}
    assert server.operator.shards == {0, 1, 7}
    assert server.staging.staged_bytes == 0
    with pytest.raises(FencedError):
        server.stage(1, 0, 9, 0, (2,))
    assert server.run(1, 1, server.stage(1, 1, 10, 0, (2,))) == [2]


def test_assigning_loads_everything_where_undo_is_no_longer_possible(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    kept = server.checkpoint.stored["0-0"]
    server.run(1, 0, server.stage(1, 0, 8, 0, (2,)), commit=True)
    server.engine.forget(request(1, 0))
    with pytest.raises(FencedError):
        server.engine.assign(assignment(-1, 5, (0,)))
    ref = server.checkpoint.save(Attempt(1, 0), Sealed([], {OPERATOR: {0: kept}}, {}))
    server.engine.assign(assignment(3, 0, (0,), ref))
    assert server.operator.numbers == [1]
    assert len(server.operators) == 2
    assert server.run(4, 0, server.stage(4, 0, 10, 0, (5,))) == [5]


def test_a_slow_store_stops_no_other_step(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    go, begun = threading.Event(), threading.Event()
    write = server.checkpoint.save

    def slow(*args: object) -> object:
        begun.set()
        assert go.wait(10)
        return write(*args)  # type: ignore[arg-type]

    server.checkpoint.save = slow  # type: ignore[method-assign,assignment]
    committing = threading.Thread(target=server.engine.commit, args=(request(0, 0),))
    committing.start()
    assert begun.wait(10)
    assert server.engine.status(request(0, 0)).rows == 1
    assert emitted(server, 0, 0) == [1]
    go.set()
    committing.join(10)
    assert server.checkpoint.written == [Attempt(0, 0)]


def test_a_commit_that_comes_late_writes_what_was_sealed_before_the_next_epoch(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.run(1, 0, server.stage(1, 0, 8, 0, (2, 3)))
    first = server.engine.commit(request(0, 0))
    assert server.checkpoint.stored["0-0"].column(0).to_pylist() == [1]
    assert first.horizons == {OPERATOR: 1}
    assert server.engine.commit(request(0, 0)) == first
    server.engine.commit(request(1, 0))
    assert server.checkpoint.stored["1-0"].column(0).to_pylist() == [2, 3]
    assert server.checkpoint.written == [Attempt(0, 0), Attempt(1, 0)]


def test_what_was_sealed_outlives_another_try_of_the_next_epoch(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.run(1, 0, server.stage(1, 0, 8, 0, (2,)))
    assert server.run(1, 1, server.stage(1, 1, 9, 0, (3,))) == [3]
    server.engine.commit(request(0, 0))
    assert server.checkpoint.stored["0-0"].column(0).to_pylist() == [1]


def test_nothing_sealed_is_kept_of_an_epoch_that_is_tried_again_or_forgotten(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    server.run(0, 1, server.stage(0, 1, 8, 0, (4,)))
    with pytest.raises(FencedError):
        server.engine.commit(request(0, 0))
    server.run(1, 0, server.stage(1, 0, 9, 0, (5,)))
    server.engine.forget(request(0, 1))
    with pytest.raises(FencedError):
        server.engine.commit(request(0, 1))
    assert server.checkpoint.written == []


def test_status_does_not_wait_for_a_step(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)))
    go, begun = threading.Event(), threading.Event()
    apply = server.operator.apply

    def slow(*args: object) -> None:
        begun.set()
        assert go.wait(10)
        apply(*args)  # type: ignore[arg-type]

    server.operator.apply = slow  # type: ignore[method-assign]
    assert not server.engine.status(request(0, 0)).busy
    committed_attempt = server.stage(1, 0, 8, 0, (2,))
    step = threading.Thread(target=server.run, args=(1, 0, committed_attempt))
    step.start()
    assert begun.wait(10)
    status = server.engine.status(request(0, 0))
    assert (status.busy, status.rows, status.epoch, status.staged_bytes) == (True, 1, 0, 8)
    go.set()
    step.join(10)
    assert server.engine.status(request(0, 0)).rows == 2


def moving(epoch: int, shards: tuple[int, ...], *objects: ObjectRef) -> Request:
    return replace(assignment(epoch, 0, shards, *objects), moving=True)


def test_shards_move_while_rows_of_the_next_epoch_are_staged(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    next_ = server.stage(1, 0, 8, 0, (2,))
    for _ in range(2):  # an answer may be lost on its way back
        server.engine.assign(moving(0, (0, 2, 5)))
    assert server.operator.shards == {0, 2, 5}
    assert server.operator.restored[0] == 1, "what was here is not loaded again"
    assert server.run(1, 0, next_) == [2]
    with pytest.raises(StateServerError, match="1 is applied"):
        server.engine.assign(moving(0, (0, 1)))
    assert server.operator.shards == {0, 2, 5} and server.operator.numbers == [1, 2]


def test_a_new_server_takes_rows_before_it_has_shards(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    kept = server.checkpoint.stored["0-0"]
    ref = server.checkpoint.save(Attempt(0, 0), Sealed([], {OPERATOR: {0: kept}}, {}))
    new = bench(server.staging.folder, opened=False)
    new.checkpoint.stored = server.checkpoint.stored
    next_ = new.stage(1, 0, 8, 0, (2,))
    new.engine.assign(moving(0, (0,), ref))
    assert new.run(1, 0, next_) == [2]
    assert new.operator.numbers == [1, 2]


def test_what_was_loaded_after_an_epoch_is_not_undone_to_before_it(server: Bench) -> None:
    server.run(0, 0, server.stage(0, 0, 7, 0, (1,)), commit=True)
    server.run(1, 0, server.stage(1, 0, 8, 0, (2,)), commit=True)
    server.engine.assign(moving(1, (0, 5)))
    for try_ in (0, 9):
        with pytest.raises(FencedError):
            server.engine.assign(assignment(0, try_, (0, 5)))
        with pytest.raises(FencedError):
            server.run(1, try_ + 1)
