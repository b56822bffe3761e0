"""Windows that end by silence, in epochs without rows: their driver is killed in one of these, and goes on with it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from support.crash.kill_points import KillPoint, Trail, Watch
from support.processes import TESTS, Sandbox, kill, wait_until
from support.queries.file_sink import written
from support.queries.simple import SCHEMA, SECOND
from tailrace.testing import ScriptedSource

CHILD = TESTS / "crash" / "child_idle.py"
TIMES = range(1000, 1005)
KEYS = range(3)
DELAY_S = 5
"""Longer than the rows' times differ, so that every window is ended by an idle epoch."""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", ["offsets", "log", "sink", "commits"])
def test_an_idle_epoch_comes_again_the_same(point: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Sandbox() as sandbox:
        root = sandbox.root / "q"
        root.mkdir()
        feed(root)
        config = {"root": str(root), "delay": f"{DELAY_S} seconds", "commit": rng.choice(["sync", "async"])}
        child = sandbox.start(CHILD, config)
        wait_until("a window that ends", lambda: bool(rows(root)), 120, 0.01)
        watch = Watch(Trail(root), KillPoint.draw(rng, max(epochs(root)) + rng.randint(1, 2), point))
        wait_until(f"the {point} of an idle epoch", watch.reached, 60)
        kill(child.pid)
        child.wait()
        assert sandbox.gone_within(20.0) == []
        child = sandbox.start(CHILD, config)
        wait_until("all windows", lambda: rows(root).total() >= len(wanted()), 120, 0.05)
        (root / "stop").touch()
        assert child.wait(60) == 0, sandbox.log_tail()
        assert rows(root) == Counter(wanted())


def feed(root: Path) -> None:
    made = [(key, time * SECOND, time * 10 + key) for time in TIMES for key in KEYS]
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*made, strict=True), SCHEMA, strict=True)
    ]
    ScriptedSource(root / "in", SCHEMA).add([pa.table(columns, schema=SCHEMA)])


def wanted() -> list[tuple[int, int, int, int]]:
    return [(time, key, 1, time * 10 + key) for time in TIMES for key in KEYS]


def epochs(root: Path) -> list[int]:
    return [int(path.stem) for path in (root / "out").glob("*.parquet")]


def rows(root: Path) -> Counter[tuple[int, int, int, int]]:
    """Of the sink, that no epoch has been given twice with other rows."""
    found: Counter[tuple[int, int, int, int]] = Counter()
    for epoch in epochs(root):
        table = written(root / "out", epoch)
        for row in table.to_pylist() if table is not None else ():
            found[int(row["window"]["start"].timestamp()), row["k"], row["n"], row["total"]] += 1
    return found
