"""Thousands of seeds of the simulated commit, none of which breaks an invariant; and the same seed twice is the same.

``TAILRACE_SIM_SEED=... pytest tests/simulation`` runs one seed; ``TAILRACE_SIM_SEEDS=...`` says how many.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.simulation.seeds import Failed, run_seed, run_seeds
from support.simulation.world import simulated
from tailrace.env import clock, randomness, tasks

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SEEDS = int(os.environ.get("TAILRACE_SIM_SEEDS", 10_000 if LONG else 1_000))
GIVEN = os.environ.get("TAILRACE_SIM_SEED")
PARTS = 1 if GIVEN else 4
"""So that the processes of a test run share them."""
TWICE = 20


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant(part: int) -> None:
    seeds = [int(GIVEN)] if GIVEN else random.sample(range(2**32), SEEDS // PARTS)
    totals = run_seeds(seeds)
    print(totals)
    assert GIVEN or totals.faults > len(seeds), "hardly anything went wrong in these seeds"


def test_a_seed_is_the_same_every_time() -> None:
    seeds = random.sample(range(2**32), TWICE)
    print(f"seeds {seeds}")
    with simulated():
        once = [run_seed(seed) for seed in seeds]
        again = [run_seed(seed) for seed in reversed(seeds)]
    assert once == again[::-1]
    assert len({each.trace for each in once}) == TWICE


def test_a_seed_is_the_same_beside_threads_that_are_none_of_its_own() -> None:
    """Tests before may have left some. They sleep, lock and make names as the code under test does."""
    seeds = random.sample(range(2**32), 3)
    print(f"seeds {seeds}")
    over = threading.Event()
    wrong: list[BaseException] = []

    def live() -> None:
        try:
            while not over.is_set():
                with tasks.lock():
                    clock.sleep(0.0001)
                randomness.short_id()
        except BaseException as error:
            wrong.append(error)

    with simulated():
        alone = [run_seed(seed) for seed in seeds]
        other = threading.Thread(target=live, daemon=True)
        other.start()
        beside = [run_seed(seed) for seed in seeds]
        over.set()
        other.join(30)
    assert alone == beside and not wrong and not other.is_alive()


def test_a_seed_is_the_same_in_another_process() -> None:
    """Whose hashes of text, and so whose order of sets, are others."""
    seeds = random.sample(range(2**32), TWICE)
    print(f"seeds {seeds}")
    with simulated():
        here = [run_seed(seed) for seed in seeds]
    there = subprocess.run(
        [sys.executable, "-m", "support.simulation.seeds", *map(str, seeds)],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTHONHASHSEED": str(random.randrange(2**32))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout.splitlines() == [str(each) for each in here]


def test_a_failure_says_its_seed_and_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.simulation.broken import no_gate

    no_gate(monkeypatch)
    with pytest.raises(Failed, match=r"TAILRACE_SIM_SEED=\d+") as caught:
        run_seeds(range(100))
    again = str(caught.value)
    seed = int(again.split("TAILRACE_SIM_SEED=")[1].split()[0])
    what, _, *steps = again.splitlines()
    assert "sink" in what and any("sink" in step for step in steps)
    with pytest.raises(Failed) as replayed:
        run_seeds([seed])
    assert str(replayed.value) == again
