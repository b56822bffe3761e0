"""Settings that are put in place for a replay: they are the recorded ones, and go again, whoever starts meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.spark.sources import splits
from tailrace.spark.sources.splits import InputSplits

CORES, BYTES = "spark.sql.leafNodeDefaultParallelism", "spark.sql.files.maxPartitionBytes"


class Session:
    """What is asked of a session."""

    def __init__(self, cores: int, **given: str) -> None:
        self.given = {BYTES: "128", **given}
        self.sparkContext = SimpleNamespace(defaultParallelism=cores)
        self.conf = SimpleNamespace(
            get=self.given.get, set=self.given.__setitem__, unset=lambda name: self.given.pop(name, None)
        )


def of(session: Session, recorded: dict[str, str] | None = None) -> InputSplits:
    made: Any = session
    return InputSplits(made, 0, recorded)


def test_what_decides_is_what_is_set_or_else_the_cores() -> None:
    session = Session(2)
    assert of(session).now() == {BYTES: "128", CORES: "2"}
    made = of(session)
    session.sparkContext.defaultParallelism = 9  # executors have come
    assert made.now()[CORES] == "9"
    session.given[CORES] = "5"
    assert of(session).now()[CORES] == "5"


def test_a_replay_finds_what_was_recorded_and_then_the_session_is_as_it_was() -> None:
    session, clone = Session(2), Session(2)
    made = of(session, {BYTES: "64", CORES: "7"})
    assert session.given == {BYTES: "64", CORES: "7"}
    clone.given.update(session.given)
    other: Any = clone
    made.release(other)
    assert session.given == clone.given == {BYTES: "128"}
    session.given[BYTES] = "1"
    made.release()
    assert session.given == {BYTES: "1"}, "once"
    of(session, {BYTES: "1", CORES: "2"}).release()
    assert session.given == {BYTES: "1"}, "nothing was to be done"


def test_another_start_waits_until_the_settings_are_the_users_again() -> None:
    session = Session(2)
    first = of(session, {BYTES: "64", CORES: "7"})
    found: list[InputSplits] = []
    second = threading.Thread(target=lambda: found.append(of(session, {BYTES: "32", CORES: "2"})))
    second.start()
    second.join(0.05)
    assert not found
    first.release()
    second.join(10)
    assert session.given == {BYTES: "32"} and found[0].now() == {BYTES: "128", CORES: "2"}
    found[0].release()
    assert session.given == {BYTES: "128"}


def test_a_start_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(splits, "_WAIT_S", 0.01)
    session = Session(2)
    first = of(session, {BYTES: "64", CORES: "7"})
    second = of(session, {BYTES: "32", CORES: "2"})
    assert session.given[BYTES] == "64" and "may differ in their last digits" in caplog.text
    second.release()
    assert session.given[BYTES] == "64"
    first.release()
    assert session.given == {BYTES: "128"}


def test_a_start_that_fails_in_between_holds_up_nobody() -> None:
    session = Session(2)
    with pytest.raises(AttributeError):
        of(Session.__new__(Session))
    of(session, {BYTES: "64", CORES: "7"}).release()
    assert session.given == {BYTES: "128"}
