"""``make soak``: an hour of faults on a cluster of network namespaces, one every 8 to 16 s, and numbers at the end.

``python tests/cluster/soak.py [--seconds N] [--seed N]``. The last line of the output is JSON. Exits with 1 where a row
was lost, doubled or wrong, where a driver ended that nobody had killed, or where queries got stuck; the drivers' log is
kept then. Ctrl-C removes all that was started and made; what a killed run leaves, the next one removes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from support.class_archive import use_archive  # noqa: E402
from support.cluster.hosts import Hosts  # noqa: E402
from support.cluster.network import NotPermitted  # noqa: E402
from support.cluster.soak import ByClock, Soak  # noqa: E402
from support.session import session_builder, use_defaults  # noqa: E402

EPOCHS = 40
"""Of each query in a round: few enough for Spark to keep the offsets of all, which the oracle reads."""
LOGS = TESTS.parent / "build"


def say(line: str) -> None:
    print(line, flush=True)


def soak(hosts: Hosts, seconds: float, seed: int) -> int:
    """The exit code."""
    say(f"seed {seed}, {seconds:.0f} s")
    if not hosts.network.netem:
        say("this kernel has no netem: packets wait for slow links, and are dropped by a filter")
    spark = session_builder("local[1]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's would cancel the oracle's jobs, which then fail
    rng = random.Random(seed)
    run, schedule = Soak(hosts, spark, rng, say), ByClock(rng, seconds)
    stopped = None
    try:
        while not schedule.over:
            run.play(EPOCHS, schedule)
    except (AssertionError, KeyboardInterrupt) as error:
        stopped = str(error) or "interrupted"
    if stopped is not None or not run.exact:
        LOGS.mkdir(exist_ok=True)
        say(f"the drivers' log: {shutil.copy(hosts.sandbox.log, LOGS / f'soak-{seed}.log')}")
    say(json.dumps({"seed": seed, **run.numbers(), "stopped": stopped}))
    return 0 if stopped is None and run.exact else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long faults come; the last round ends later")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    use_archive()
    use_defaults()
    try:
        with Hosts() as hosts:
            return soak(hosts, given.seconds, given.seed)
    except NotPermitted as error:
        say(f"no soak: {error}")
    except KeyboardInterrupt:
        say("interrupted")
    return 1


if __name__ == "__main__":
    sys.exit(main())
