"""Queries whose servers and whose driver are killed again and again give the oracle's rows, each once.

SIGKILL: nobody can clean up. A driver that loses a server starts another one, reopens what is durable and gives the
epoch a new try. Of a killed driver JVM and servers must be gone within seconds; the next one goes on where it was.

The queries of ``support.crash.kill_queries``, one for each store and kind of operator, run at once in one driver, so
that one kill finds each of them at another step: five of them, drawn, in the quick profile, all in the long one, which
also runs each by itself, with more kills.

``TAILRACE_TEST_KILLS=1000`` repeats the run of all at once, each time with a new seed, until so many were killed.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from pyspark.sql import SparkSession

from support.crash.kill_plan import Killer
from support.crash.kill_queries import CASES, MORE_CASES
from support.crash.kill_runs import KillRun
from support.draw import drawn

KILLS = int(os.environ.get("TAILRACE_TEST_KILLS", "0"))
LONG = os.environ.get("TAILRACE_TEST_LONG") == "1" or KILLS > 0
EPOCHS = 30 if LONG else 12
SERVERS = 10 if LONG else 2
"""How often the servers of each query are killed."""
AT_RANDOM, IN_SINKS, AT_STARTS, IN_REWINDS = (12, 3, 5, 5) if LONG else (1, 1, 1, 0)
"""How often the driver is killed."""
ONCE_MORE = 6 if LONG else 2
"""So many of the queries lose a server once more, since a query may come to its end before its last kill."""
KILLS_MIN = 100 if LONG else 12


@pytest.mark.timeout(max(1800, 20 * KILLS))
@pytest.mark.parametrize(
    "names",
    [pytest.param([*CASES] if LONG else drawn([*CASES], __name__, 5), id="all at once")]
    + [pytest.param([name], id=name, marks=pytest.mark.long) for name in [*CASES, *MORE_CASES]],
)
def test_whatever_is_killed_nothing_is_lost_or_repeated(spark: SparkSession, names: list[str]) -> None:
    began, servers, drivers = time.monotonic(), 0, 0
    while True:
        killer = kill_and_verify(spark, names)
        servers, drivers = servers + killer.servers, drivers + killer.drivers
        print(f"{servers} servers and {drivers} drivers killed in {time.monotonic() - began:.0f} s", flush=True)
        if len(names) == 1 or servers + drivers >= KILLS:
            break


def kill_and_verify(spark: SparkSession, names: list[str]) -> Killer:
    """One run of the queries to their end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    modes = {name: rng.choice(["sync", "async", "async", "async-checkpoint"]) for name in names}
    print(modes)
    with KillRun(seed, EPOCHS, names, modes) as run:
        killer = Killer(run, rng)
        unlucky = rng.sample(names, min(ONCE_MORE, len(names)))
        for name in names:
            killer.plan(name, SERVERS + (name in unlucky))
        ways = [killer.at_random] * AT_RANDOM + [killer.in_sink] * IN_SINKS + [killer.at_start] * AT_STARTS
        ways += [killer.in_rewind] * IN_REWINDS
        rng.shuffle(ways)
        for number, kill in enumerate(ways):
            kill((number + 1) * EPOCHS // (len(ways) + 1))
        killer.finish()
        assert killer.servers + killer.drivers >= (KILLS_MIN if len(names) > 1 else SERVERS)
        run.verify(spark)
    return killer
