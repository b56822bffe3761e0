"""Steps of an epoch from the driver's laps and the servers' own times."""

from __future__ import annotations

import pytest

from tailrace.spark.epoch.timeline import Step, commit_steps, epoch_steps


def test_steps_follow_each_other_and_calls_are_nobodys() -> None:
    laps = {"plan": 10.0, "ingest": 100.0, "servers": 50.0, "gate": 5.0, "sink": 20.0}
    steps = epoch_steps(3, 1000.0, laps, apply_ms=20.0, advance_ms=10.0)
    assert [each.name for each in steps] == ["plan", "ingest", "apply", "advance", "gate", "sink"]
    assert all(each.epoch == 3 and each.began <= each.ended for each in steps)
    by_name = {each.name: each for each in steps}
    assert by_name["apply"].began == pytest.approx(1000.110)
    assert by_name["advance"].ended == pytest.approx(1000.140)
    assert by_name["gate"].began == pytest.approx(1000.160)
    assert by_name["sink"].ended == pytest.approx(1000.185)


def test_steps_of_a_commit_are_its_epochs() -> None:
    assert commit_steps(2, [("local", 1.0, 2.0), ("upload", 2.0, 5.0)]) == [
        Step(2, "local", 1.0, 2.0),
        Step(2, "upload", 2.0, 5.0),
    ]
