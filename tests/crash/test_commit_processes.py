"""Real processes: racing for one name, and killed with SIGKILL while they commit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.crash.commit_worker import PLAN, SHARDS, changes_of, expected, logs_of
from support.models.commit import state_of
from support.models.spark_logs import spark_logs
from tailrace.commit.controller import Controller
from tailrace.env.stores.local_store import LocalStore

RACER = """
import sys
from pathlib import Path
from tailrace.env.stores.local_store import LocalStore
store, who = LocalStore(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
print(" ".join(str(n) for n in range(200) if store.put_if_absent(f"race/{n}", who.encode())))
"""


def test_two_processes_race_for_put_if_absent(tmp_path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path), str(who)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [set(racer.communicate(timeout=60)[0].split()) for racer in racers]
    assert not won[0] & won[1]
    assert won[0] | won[1] == {str(n) for n in range(200)}
    store = LocalStore(tmp_path)
    for who in range(2):
        assert all(store.get(f"race/{n}") == str(who).encode() for n in won[who])


def test_a_killed_query_lands_on_an_exact_prefix(tmp_path) -> None:
    """A child commits epochs and compacts in the background; it is killed at a random point, again and again."""
    seed = int(os.environ.get("TAILRACE_TEST_SEED", random.randrange(2**32)))
    print(f"seed {seed} (TAILRACE_TEST_SEED)")
    rng = random.Random(seed)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    reached, kills = -1, 0
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-m", "support.crash.commit_worker", str(tmp_path), str(rng.choice([1, 2, 3]))],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None and child.stdout.readline() == "started\n", "the child did not start"
        for _ in range(rng.randrange(12)):
            child.stdout.readline()  # an epoch further
        time.sleep(rng.random() * 0.03)
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(20) == -signal.SIGKILL
        kills += 1
        commits, _ = logs_of(tmp_path)
        store = LocalStore(tmp_path / "state")
        controller = Controller.start(store, PLAN, spark_logs(*logs_of(tmp_path)))
        recovery_point = controller.recovery_point
        assert recovery_point.epoch == max(commits, default=-1) >= reached
        assert state_of(store, recovery_point.manifest, SHARDS, 2) == expected(recovery_point.epoch), seed
        if recovery_point.replay is not None:
            assert recovery_point.replay.rows == {"input": len(changes_of(recovery_point.replay.epoch))}
        reached = recovery_point.epoch
        controller.close()
    assert kills == 12 and reached > 10, (reached, seed)
