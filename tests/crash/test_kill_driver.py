"""A query of 30 epochs whose driver is killed again and again, and restarted until done, gives the oracle's rows.

SIGKILL: nothing of the driver can clean up. Its JVM and its state server must be gone within seconds all the same.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from support.kill_case import EPOCHS
from support.kill_runs import GONE_S, KillRun
from support.killing import POINTS, KillPoint
from support.processes import kill, wait_until

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
KILLS = 30 if LONG else 3
MODES = ("append", "update")


def seen_or_ended(seen: Callable[[], bool], child: subprocess.Popen[bytes]) -> bool:
    return seen() or child.poll() is not None


def has_more_entries(run: KillRun, before: int) -> bool:
    return run.trail.log_entries() > before


@pytest.mark.timeout(KILLS * 40 + 120)
@pytest.mark.parametrize("mode", MODES if LONG else [random.choice(MODES)])
def test_a_killed_driver_loses_and_repeats_nothing(spark: SparkSession, mode: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    points = [KillPoint.draw(rng, int((i + 1) * EPOCHS / (KILLS + 1))) for i in range(KILLS)]
    with KillRun(seed, mode) as run:
        for point in points:
            child = run.start()
            if not point.wait(run.trail, child):
                break
            kill(child.pid)
            child.wait()
            print(f"killed at {point}: {run.where()}")
            assert run.sandbox.gone_within(GONE_S) == []
        run.finish()
        run.verify(spark)


@pytest.mark.long
@pytest.mark.timeout(10 * 80 + 120)
def test_a_killed_driver_loses_and_repeats_no_late_row(spark: SparkSession) -> None:
    """The second sink, too, holds each late row once."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with KillRun(seed, "late") as run:
        for epoch in range(2, EPOCHS, 3):
            child = run.start()
            point = KillPoint.draw(rng, epoch)
            if not point.wait(run.trail, child):
                break
            kill(child.pid)
            child.wait()
            print(f"killed at {point}: {run.where()}")
            assert run.sandbox.gone_within(GONE_S) == []
        run.finish()
        run.verify(spark)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["append", "update"] if LONG else ["update"])
def test_a_driver_killed_in_its_sink_replays_the_epoch(spark: SparkSession, mode: str) -> None:
    """The epoch is durable with us and not committed with Spark: the version before it must still be there."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with KillRun(seed, mode) as run:
        for epoch in sorted(rng.sample(range(EPOCHS), 4 if LONG else 1)):
            child = run.start(pause_epoch=epoch)
            paused = run.root / "out" / "paused"
            wait_until(f"epoch {epoch} in the sink", partial(seen_or_ended, paused.exists, child), 90)
            assert child.poll() is None, run.sandbox.log_tail()
            kill(child.pid)
            child.wait()
            paused.unlink()
            assert run.trail.spark_epoch("commits") == epoch - 1
            assert run.sandbox.gone_within(GONE_S) == []
        run.finish()
        run.verify(spark)


@pytest.mark.timeout(KILLS * 40 + 120)
def test_a_driver_killed_while_it_starts(spark: SparkSession) -> None:
    """At any moment between its first line and its first epoch: locks, fences and half-started servers."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with KillRun(seed, "append") as run:
        for kill_number in range(KILLS if LONG else 2):
            child = run.start()
            first = KillPoint(run.trail.spark_epoch("commits") + 1, rng.choice(POINTS[:3]), rng.uniform(0, 0.05))
            if kill_number % 2:
                before = run.trail.log_entries()
                wait_until("a fence", partial(seen_or_ended, partial(has_more_entries, run, before), child), 90)
            else:
                first.wait(run.trail, child)
            kill(child.pid)
            child.wait()
            print(f"killed at {first if kill_number % 2 == 0 else 'fence'}: {run.where()}")
            assert run.sandbox.gone_within(GONE_S) == []
        run.finish()
        run.verify(spark)
