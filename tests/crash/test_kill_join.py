"""A left outer join whose servers and whose driver are killed again and again gives the oracle's rows, each once."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections import Counter

import pytest

from support.join_case import KINDS, SCHEMAS, batches, expected
from support.kill_runs import GONE_S, KillRun
from support.killing import KillPoint
from support.processes import TESTS, kill
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
EPOCHS = 24 if LONG else 10
DRIVERS, SERVERS = (6, 12) if LONG else (1, 1)
"""How often each is killed."""
KINDS_KILLED = ("interval", "sliding", "valid right", "ttl")


class JoinKillRun(KillRun):
    """``mode`` is the kind of the join."""

    child = TESTS / "crash" / "child_join.py"

    def feed(self, seed: int) -> None:
        self._sides = batches(seed, EPOCHS)
        for name, schema, tables in zip(("left", "right"), SCHEMAS, self._sides, strict=True):
            ScriptedSource(self.root / name, schema).add(tables)

    def check_rows(self) -> None:
        said = expected(KINDS[self._mode], "left_outer", *self._sides, False)
        assert any(said.epochs)
        for epoch, wanted in enumerate(said.epochs):
            found = Counter(repr(tuple(row.values())) for row in rows_of(self.output(epoch)))
            assert found == wanted, f"epoch {epoch}: missing {wanted - found}, too many {found - wanted}"


def kill_server(run: JoinKillRun, child: subprocess.Popen[bytes]) -> bool:
    """Kill the server that lives now, or the next one; false where the query has ended meanwhile."""
    while child.poll() is None:
        if sum(kill(server.pid) for server in run.sandbox.servers()):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.timeout(DRIVERS * 60 + SERVERS * 30 + 120)
@pytest.mark.parametrize("kind", KINDS_KILLED if LONG else [random.choice(KINDS_KILLED)])
def test_a_join_that_is_killed_loses_and_repeats_nothing(kind: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    epochs = sorted(rng.sample(range(1, EPOCHS), DRIVERS + SERVERS))
    points = [KillPoint.draw(rng, epoch) for epoch in epochs]
    drivers = set(rng.sample(epochs, DRIVERS))
    killed = 0
    with JoinKillRun(seed, kind) as run:
        child = run.start()
        for point in points:
            if not point.wait(run.trail, child):
                break
            if point.epoch in drivers:
                kill(child.pid)
                child.wait()
                assert run.sandbox.gone_within(GONE_S) == []
                child = run.start()
            elif not kill_server(run, child):
                break
            killed += 1
            print(f"killed {'the driver' if point.epoch in drivers else 'a server'} at {point}: {run.where()}")
        assert child.wait(120) == 0, run.sandbox.log_tail()
        assert killed >= DRIVERS + SERVERS - 1
        run.check_nothing_left()
        run.check_rows()
