"""Three hosts, each a network namespace, while processes are killed and links are bad: the oracle's rows, each once.

One short round of the schedule that ``make soak`` runs for an hour. All six kinds of faults come in the long profile;
the quick one draws some.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from support.cluster.faults import KILLS, LINKS
from support.cluster.hosts import Hosts
from support.cluster.network import NotPermitted
from support.cluster.soak import ByProgress, Soak
from support.processes import wait_until

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS = 24 if LONG else 6


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        try:
            entered = stack.enter_context(Hosts())
        except NotPermitted as error:
            pytest.skip(str(error))
        yield entered


@pytest.mark.timeout(1200)
def test_whatever_hosts_and_links_do_rows_are_exact(spark: SparkSession, hosts: Hosts) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kinds = [*KILLS, *LINKS] if LONG else [rng.choice(KILLS), rng.choice(LINKS)]
    rng.shuffle(kinds)
    run = Soak(hosts, spark, rng, print)
    run.play(EPOCHS, ByProgress(kinds))
    numbers = run.numbers()
    print(numbers)
    assert run.exact, numbers
    assert numbers["rows"] > 0
    wait_until("the servers' end", lambda: not hosts.servers(), 20, 0.1)
    wait_until("the executors' end", lambda: not hosts.executors(), 20, 0.1)
