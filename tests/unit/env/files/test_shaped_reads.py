"""A device that takes its time, by a clock that moves only when somebody sleeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.manual_clock import StillClock
from tailrace.env import clock
from tailrace.env.files.shaped_reads import VARIABLE, ReadDevice, read_device, shaped


@pytest.fixture
def stopped() -> Iterator[StillClock]:
    made = StillClock()
    with clock.use(made):
        yield made


def _took(stopped: StillClock, device: ReadDevice, reads: int, meanwhile_s: float = 0.0) -> float:
    before = stopped.at
    with device.reading(reads):
        stopped.at += meanwhile_s
    return stopped.at - before


def test_reads_take_their_time_as_many_at_once_as_the_device_can(stopped: StillClock) -> None:
    device = ReadDevice(0.001, depth=4)
    assert _took(stopped, device, 1) == pytest.approx(0.001)
    stopped.at += 1
    assert _took(stopped, device, 40) == pytest.approx(0.010)


def test_what_the_store_behind_takes_is_part_of_that_time(stopped: StillClock) -> None:
    device = ReadDevice(0.001, depth=4)
    assert _took(stopped, device, 40, meanwhile_s=0.006) == pytest.approx(0.010)
    stopped.at += 1
    assert _took(stopped, device, 40, meanwhile_s=0.025) == pytest.approx(0.025)


def test_reads_stand_behind_those_of_others(stopped: StillClock) -> None:
    device = ReadDevice(0.001, depth=4)
    first = stopped.at
    with device.reading(40):
        with device.reading(20):
            pass
        assert stopped.at - first == pytest.approx(0.015)
    assert stopped.at - first == pytest.approx(0.015)


def test_a_device_without_a_time_costs_none(stopped: StillClock) -> None:
    assert _took(stopped, ReadDevice(), 1000) == 0.0
    assert _took(stopped, ReadDevice(0.001), 0) == 0.0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        ReadDevice(-1.0)


def test_a_process_takes_its_device_from_its_environment(stopped: StillClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not read_device().slow
    monkeypatch.setenv(VARIABLE, shaped(0.002, depth=8))
    assert read_device().slow
    assert _took(stopped, read_device(), 80) == pytest.approx(0.020)
    monkeypatch.setenv(VARIABLE, "soon")
    with pytest.raises(ValueError, match=f"{VARIABLE}=soon: must be SECONDS:DEPTH"):
        read_device()
