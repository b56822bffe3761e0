"""The search for the highest rate, what growth is, and what kills cost: on made-up results, without a system."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab.espbench.run.capacity import Trial, searched
from tailrace.lab.espbench.run.outcome import growth
from tailrace.lab.espbench.run.recovery import kills

START_MS = 1_700_000_000_000


@given(limit=st.integers(0, 300_000), precision=st.floats(0.02, 0.5))
def test_the_search_ends_just_below_the_limit(limit: int, precision: float) -> None:
    tried: list[int] = []

    def trial(rate: int) -> Trial:
        tried.append(rate)
        return Trial(rate, "" if rate <= limit else "latency grew", 1.0)

    found = searched("q3", "tailrace", 1_000, 100_000, precision, trial)
    assert len(set(tried)) == len(tried) and tried == [trial.rate for trial in found.trials]
    if limit < 1_000:
        assert (found.rate, found.at_least, tried) == (0, False, [1_000])
    elif limit >= 100_000:
        assert (found.rate, found.at_least) == (100_000, True)
    else:
        assert found.rate <= limit < found.rate * (1 + precision) * 1.01 and not found.at_least


def test_a_sender_that_is_too_slow_is_no_limit_of_the_system() -> None:
    found = searched(
        "q3", "spark", 1_000, 8_000, 0.3, lambda rate: Trial(rate, "late" if rate > 3_000 else "", 1.0, rate > 3_000)
    )
    assert found.at_least and 2_000 <= found.rate <= 3_000


@pytest.mark.parametrize("slope", [0.0, 0.05, 0.5])
def test_growth_is_seen_through_sawteeth_and_a_pause(slope: float) -> None:
    random = np.random.default_rng(7)
    caused = START_MS + np.arange(0, 20_000, 5)
    latencies = 100 + (caused % 700) + slope * (caused - START_MS) + random.integers(0, 20, len(caused))
    latencies[2_000:2_100] += 3_000
    assert growth(caused.tolist(), latencies.astype(int).tolist()) == pytest.approx(slope, abs=0.012)


def test_little_says_nothing_of_growth() -> None:
    assert growth([], []) == 0 and growth([1, 2], [5, 500]) == 0 and growth([7] * 20, list(range(20))) == 0


def test_a_kill_costs_silence_and_then_time_to_catch_up() -> None:
    """A record every 10 ms, with its result 20 ms later; from 10 s on nothing for 4 s, then a queue until 16 s."""
    caused = START_MS + np.arange(0, 30_000, 10)
    at = caused - START_MS
    latencies = np.where((at >= 9_990) & (at < 16_000), np.maximum(14_000 + (at - 9_990) / 3 - at, 20), 20).astype(int)
    (found,) = kills([START_MS / 1e3 + 10], caused.tolist(), latencies.tolist())
    assert found.silent_s == pytest.approx(4.0, abs=0.05)
    assert found.behind_s is not None and 5 <= found.behind_s <= 7


def test_a_system_that_never_comes_back_is_said_to() -> None:
    caused = START_MS + np.arange(0, 10_000, 10)
    (found,) = kills([START_MS / 1e3 + 10.5], caused.tolist(), [20] * len(caused))
    assert (found.silent_s, found.behind_s) == (None, None)
    assert kills([], caused.tolist(), [20] * len(caused)) == []
