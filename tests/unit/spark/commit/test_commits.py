"""Commits of one run, with real commits and a fleet that fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.models.spark_logs import spark_logs
from tailrace.api.options import CommitMode
from tailrace.commit.controller import Controller
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.stores.local_store import LocalStore
from tailrace.errors import CheckpointError, RewindNeeded, StateServerError
from tailrace.server.transport.epoch_messages import CommitResult, Uploaded
from tailrace.spark.commit.commits import CommitRequest, Commits

EVERY = list(CommitMode)


class Fleet:
    """One server. ``broken``: what a commit of an epoch raises. ``far``: deltas are saved first and then uploaded."""

    def __init__(self, far: bool = False) -> None:
        self.broken: dict[tuple[int, int], Exception] = {}
        self.asked: list[str] = []
        self.far = far
        self.lost = False  # uploads fail until it is replaced
        self.saved: dict[str, ObjectRef] = {}
        self.uploaded: set[str] = set()
        self.servers = ("only",)

    def client(self, server: str) -> Fleet:
        return self

    def replace_lost(self) -> None:
        self.asked.append("replace")
        self.lost = False

    def each(self, call: Callable[[Any, int], Any]) -> list[Any]:
        return [call(self, 0)]

    def commit(self, epoch: int, try_: int, *, upload: bool) -> CommitResult:
        if (epoch, try_) in self.broken:
            raise self.broken[epoch, try_]
        if not self.far:
            return CommitResult(None, (), {}, 0.0)
        ref = ObjectRef(f"objects/{epoch}-{try_}", epoch, epoch, ((0, 1),), 1, (("op", None),))
        self.saved[ref.name] = ref
        if upload:
            self.upload([ref])
        return CommitResult(ref, (), {}, 0.0, uploaded=upload)

    def upload(self, deltas: Iterable[ObjectRef]) -> Uploaded:
        if self.lost:
            raise StateServerError("lost while it uploaded")
        names = [ref.name for ref in deltas if ref.name in self.saved]
        self.uploaded |= set(names)
        return Uploaded(tuple(names), ("upload", 0.0, 1.0))

    def compact(self, manifest: Manifest) -> None:
        self.asked.append(f"compact {manifest.epoch}")

    def forget(self, epoch: int) -> None:
        self.asked.append(f"forget {epoch}")


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller.start(LocalStore(tmp_path), {"q": 1}, spark_logs())
    yield made
    made.close()


def order(epoch: int, try_: int = 0) -> CommitRequest:
    return CommitRequest(epoch, try_, 1, {}, {"input": 1}, {})


def epoch(commits: Commits, number: int, try_: int = 0) -> None:
    commits.begin(order(number, try_))
    commits.gate(number)
    commits.epoch_finished()


@pytest.mark.parametrize("mode", EVERY)
def test_all_is_durable_at_the_end_and_cleaned_behind(controller: Controller, fleet: Fleet, mode: CommitMode) -> None:
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    for number in range(4):
        epoch(commits, number)
        assert controller.durable >= (number if mode is CommitMode.SYNC else number - 1), "the gate"
    assert commits.close() is None
    assert controller.durable == 3
    assert fleet.asked == [f"{what} {number}" for number in range(4) for what in ("compact", "forget")]


def test_what_sinks_keep_of_an_epoch_goes_behind_its_entry(
    controller: Controller, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the entry is in the log, a start may go back to that epoch, and its sinks must know those behind it."""
    cleaned: list[int] = []
    clean, results = controller.clean, iter([None, CheckpointError("the store does not answer"), None])

    def failing() -> None:
        if (error := next(results)) is not None:
            raise error
        clean()

    monkeypatch.setattr(controller, "clean", failing)
    commits = Commits(controller, fleet, CommitMode.SYNC, [cleaned.append])  # type: ignore[arg-type]
    for number in range(3):
        epoch(commits, number)
    assert commits.close() is None
    assert cleaned == [0, 2]


@pytest.mark.parametrize("mode", EVERY)
def test_a_try_whose_commit_was_lost_is_followed_by_another(
    controller: Controller, fleet: Fleet, mode: CommitMode
) -> None:
    """The epoch's own commit fails: that must not fail its next try."""
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    epoch(commits, 0)
    fleet.broken[1, 0] = StateServerError("lost")
    try:
        commits.begin(order(1))
        commits.gate(1)
    except StateServerError:
        assert mode is not CommitMode.ASYNC, "whose gate does not wait for it; its sink has lost the server"
    assert commits.base_of_retry(1).epoch == 0
    assert commits.durable_manifest(1) is None
    epoch(commits, 1, 1)
    epoch(commits, 2)
    assert commits.close() is None
    assert controller.durable == 2


def test_an_epoch_lost_behind_its_sink_cannot_be_built_on(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    epoch(commits, 0)
    fleet.broken[1, 0] = StateServerError("lost")
    epoch(commits, 1)
    commits.wait_idle()
    with pytest.raises(StateServerError, match="lost"):
        commits.begin(order(2))
    with pytest.raises(RewindNeeded, match="epoch 1"):
        commits.base_of_retry(2)
    assert isinstance(commits.close(), StateServerError)
    assert controller.durable == 0


def test_a_store_that_fails_is_reported_as_it_is(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    fleet.broken[0, 0] = CheckpointError("disk full")
    epoch(commits, 0)
    commits.wait_idle()
    for step in (lambda: commits.begin(order(1)), lambda: commits.gate(1), lambda: commits.base_of_retry(1)):
        with pytest.raises(CheckpointError, match="disk full"):
            step()
    assert isinstance(commits.close(), CheckpointError)


@pytest.mark.parametrize("mode", EVERY)
def test_where_the_store_is_far_an_epoch_is_durable_only_when_it_is_uploaded(
    controller: Controller, mode: CommitMode
) -> None:
    fleet = Fleet(far=True)
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    for number in range(3):
        epoch(commits, number)
    assert commits.close() is None
    listed = {ref.name for ref in controller.manifest(2).objects}
    assert listed == fleet.uploaded == {"objects/0-0", "objects/1-0", "objects/2-0"}


def lost_after_saving_epoch_1(controller: Controller, mode: CommitMode) -> tuple[Fleet, Commits]:
    fleet = Fleet(far=True)
    commits = Commits(controller, fleet, mode)  # type: ignore[arg-type]
    epoch(commits, 0)
    commits.base_of_retry(1)
    fleet.lost = True
    epoch(commits, 1)
    commits.wait_idle()
    return fleet, commits


@pytest.mark.parametrize("mode", [CommitMode.ASYNC, CommitMode.ASYNC_CHECKPOINT])
def test_a_server_lost_between_saving_and_uploading_costs_no_epoch(controller: Controller, mode: CommitMode) -> None:
    """The first of the paper's two cases: what it had saved is there, and the one that follows it uploads that."""
    fleet, commits = lost_after_saving_epoch_1(controller, mode)
    with pytest.raises(StateServerError):
        commits.begin(order(2))
    assert controller.durable == 0
    assert commits.base_of_retry(2).epoch == 1
    assert "replace" in fleet.asked
    epoch(commits, 2, 1)
    assert commits.close() is None
    assert controller.durable == 2
    assert {ref.name for ref in controller.manifest(2).objects} == {"objects/0-0", "objects/1-0", "objects/2-1"}


@pytest.mark.parametrize("mode", [CommitMode.ASYNC, CommitMode.ASYNC_CHECKPOINT])
def test_a_copy_that_is_gone_with_its_machine_has_the_query_start_again(
    controller: Controller, mode: CommitMode
) -> None:
    """The second case: nobody has what was saved."""
    fleet, commits = lost_after_saving_epoch_1(controller, mode)
    fleet.saved.clear()
    with pytest.raises(RewindNeeded, match="epoch 1 was not durable"):
        commits.base_of_retry(2)
    assert controller.durable == 0
    commits.close()


def test_a_wait_without_an_end_is_reported_and_ends_the_query(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet, end = Fleet(far=True), threading.Event()
    monkeypatch.setattr(fleet, "upload", lambda _: end.wait(60))
    commits = Commits(controller, fleet, CommitMode.ASYNC, notice_s=0.01, timeout_s=0.3)  # type: ignore[arg-type]
    epoch(commits, 0)
    commits.begin(order(1))
    with pytest.raises(CheckpointError, match="still uploading the deltas of epoch 0"):
        commits.gate(1)
    assert "Epoch 0 did not become durable within" in caplog.text
    end.set()
    commits.close()


class EndsMeanwhile:
    """A commit that ends after the wait for it is over, and before anybody looks whether it has ended."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.waits = 0

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.waits += 1
        error: BaseException | None = self.call.exception()
        if self.waits == 1:
            raise TimeoutError
        return error

    def result(self, timeout: float | None = None) -> Any:
        self.exception(timeout)
        return self.call.result()

    def done(self) -> bool:
        return True


def test_a_commit_that_ends_while_the_wait_for_it_does_has_ended_well(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.SYNC)  # type: ignore[arg-type]
    commits.begin(order(0))
    number, call = commits._begun[0]
    commits._begun[0] = (number, EndsMeanwhile(call))  # type: ignore[assignment]
    commits.gate(0)
    assert commits.close() is None


def test_a_timeout_that_a_commit_itself_has_met_is_raised(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.SYNC)  # type: ignore[arg-type]
    fleet.broken[0, 0] = TimeoutError("of the store")
    commits.begin(order(0))
    with pytest.raises(TimeoutError, match="of the store"):
        commits.gate(0)
    commits.close()


def test_what_hangs_for_ever_is_waited_for_no_longer_than_a_commit_may_take(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a new try, which needs that no commit is under way, nor by the end of the query."""
    fleet, end = Fleet(far=True), threading.Event()
    monkeypatch.setattr(fleet, "upload", lambda _: end.wait(60))
    commits = Commits(controller, fleet, CommitMode.ASYNC, timeout_s=0.3)  # type: ignore[arg-type]
    epoch(commits, 0)
    with pytest.raises(CheckpointError, match="The commits under way did not end within"):
        commits.base_of_retry(1)
    assert isinstance(commits.close(), CheckpointError)
    end.set()


@pytest.mark.parametrize("mode", EVERY)
def test_an_epoch_that_is_replayed_is_durable_before_its_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: CommitMode
) -> None:
    """Only then does Spark plan the next one: else each crash in that would take its plan back, and it would grow."""
    controller = Controller.start(LocalStore(tmp_path), {"q": 1}, spark_logs((), (0,)))
    fleet, end = Fleet(far=True), threading.Event()
    monkeypatch.setattr(controller, "commit", lambda *_, **__: end.wait(60))
    commits = Commits(controller, fleet, mode, timeout_s=0.3)  # type: ignore[arg-type]
    commits.begin(order(0))
    with pytest.raises(CheckpointError, match="Epoch 0 did not become durable"):
        commits.gate(0)
    end.set()
    commits.close()
    controller.close()


def test_an_epoch_whose_offsets_were_changed_is_known_before_anything_is_made_of_its_rows(
    controller: Controller, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def changed(epoch: int) -> None:
        looked.wait(10)
        raise RewindNeeded("a driver that was replaced has moved Spark's logs away")

    monkeypatch.setattr(controller, "record_spark_logs", changed)
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    commits.record_spark_logs(0)
    threading.Timer(0.2, looked.set).start()
    for wait in (commits.await_records, commits.gate):
        with pytest.raises(RewindNeeded, match="moved Spark's logs away"):
            wait(0)
    commits.close()


def test_rows_are_counted_only_of_a_plan_that_is_recorded(
    controller: Controller, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start may find another run's plan of the epoch, whose put came late: it has other rows, and would be refused
    as no replay, for ever."""

    def fails(epoch: int) -> None:
        if epoch == 1:
            raise CheckpointError("the store does not answer")

    counted: list[int] = []
    monkeypatch.setattr(controller, "record_spark_logs", fails)
    monkeypatch.setattr(controller, "record_count", lambda epoch, _: counted.append(epoch))
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    for number in range(2):
        commits.record_spark_logs(number)
        commits.begin(order(number))
    commits.close()
    assert counted == [0]


@pytest.mark.parametrize(("committed", "stopped"), [(True, False), (False, False), (True, True)])
def test_an_epoch_that_spark_skips_is_not_taken_for_durable(
    tmp_path: Path, fleet: Fleet, committed: bool, stopped: bool
) -> None:
    """A replaced driver commits it when its successor has looked at Spark's logs: the source ends without an epoch."""
    logs = spark_logs((), (0,))
    controller = Controller.start(LocalStore(tmp_path), {"q": 1}, logs)
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    logs.commits += [0] * committed
    if stopped:
        commits.stop()
    assert isinstance(commits.close(), RewindNeeded) == (committed and not stopped)
    controller.close()


def test_who_moves_shards_waits_for_the_epoch_before(controller: Controller, fleet: Fleet) -> None:
    commits = Commits(controller, fleet, CommitMode.ASYNC)  # type: ignore[arg-type]
    assert commits.durable_later(-1)().epoch == -1
    epoch(commits, 0)
    assert commits.durable_later(0)().epoch == 0
    assert commits.durable_later(0)().epoch == 0
    fleet.broken[1, 0] = StateServerError("lost")
    commits.begin(order(1))
    with pytest.raises(StateServerError, match="lost"):
        commits.durable_later(1)()
    assert commits.base_of_retry(1).epoch == 0
