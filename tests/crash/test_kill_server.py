"""A query of 30 epochs whose state server is killed again and again gives the oracle's rows, without a restart.

The driver must notice, start another server, reopen what is durable, and give the epoch a new try.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from pyspark.sql import SparkSession

from support.kill_case import EPOCHS
from support.kill_runs import KillRun
from support.killing import KillPoint
from support.processes import kill

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
KILLS = 24 if LONG else 15
MODES = ("append", "update")


def kill_server(run: KillRun) -> bool:
    """Kill the server that lives now; false where there is none at this moment."""
    return sum(kill(server.pid) for server in run.sandbox.servers()) > 0


@pytest.mark.timeout(KILLS * 15 + 120)
@pytest.mark.parametrize("mode", MODES if LONG else [random.choice(MODES)])
def test_a_killed_server_loses_and_repeats_nothing(spark: SparkSession, mode: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    points = [KillPoint.draw(rng, epoch) for epoch in sorted(rng.sample(range(1, EPOCHS), KILLS))]
    killed = 0
    with KillRun(seed, mode) as run:
        child = run.start()
        for point in points:
            if not point.wait(run.trail, child):
                break
            deadline = time.monotonic() + 10
            while child.poll() is None and time.monotonic() < deadline:
                if kill_server(run):
                    killed += 1
                    print(f"killed at {point}: {run.where()}")
                    break
                time.sleep(0.01)
        assert child.wait(120) == 0, run.sandbox.log_tail()
        assert killed >= KILLS - 1
        run.check_nothing_left()
        run.verify(spark)
