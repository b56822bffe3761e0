"""Whole drivers that die, or stand still and wake up after their successor, in the middle of a table's epoch."""

from __future__ import annotations

import json
import os
import random
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.processes import NoLock, Sandbox, wait_until
from support.queries.simple import Scripted, batches
from support.queries.table_queries import KINDS, wanted, writer_of
from support.sinks.cases import CASES, Case
from tailrace.commit import controller as controllers
from tailrace.spark.query import start

CHILD = Path(__file__).parent / "child_table_sink.py"
STEPS = ("begin", "rows", "commit", "done")
KILLS = int(os.environ.get("TAILRACE_TEST_DRIVER_KILLS", "6"))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


def made(request: pytest.FixtureRequest, root: Path, format_: str, kind: str) -> Case:
    """An empty table of the format."""
    name = f"t{uuid.uuid4().hex[:8]}"
    place = {"path": str(root / name), "table": name, "upsert": "yes" if KINDS[kind] else ""}
    if format_ == "postgresql":
        place["url"] = request.getfixturevalue("postgres").url
    if format_ == "dbapi":
        place |= {"module": "sqlite3", "connect": json.dumps({"database": f"{root}/{name}.db"})}
    if format_ == "kafka":
        place["bootstrap"] = request.getfixturevalue("kafka").bootstrap
    case = CASES[format_](place)
    case.create()
    return case


def killed_at(sandbox: Sandbox, case: Case, kind: str, step: str) -> None:
    config = {"root": str(sandbox.root), "format": case.format, "place": dict(case.place), "kind": kind}
    child = sandbox.start(CHILD, {**config, "step": step, "act": "die"})
    assert child.wait(240) == -signal.SIGKILL, f"{step}: {sandbox.log_tail()}"


def finished(spark: SparkSession, query: Scripted, case: Case, kind: str) -> None:
    """Run to the end by a driver that nobody kills. A reader finds each row once."""
    started = writer_of(spark, query.path, kind, case).trigger(availableNow=True).start()
    started.awaitTermination()
    found, right = case.read(), wanted(kind, query.fed)
    assert sorted(found) == sorted(right)
    if case.ordered and kind == "rows":
        assert found == right


@pytest.mark.drawn(1)
@pytest.mark.parametrize("format_", ["kafka", "postgresql"])
def test_a_driver_is_killed_in_its_sink(
    spark: SparkSession, sandbox: Sandbox, request: pytest.FixtureRequest, format_: str
) -> None:
    query, case = Scripted(spark, sandbox.root), made(request, sandbox.root, format_, "rows")
    query.feed(batches(3))
    killed_at(sandbox, case, "rows", "commit")
    finished(spark, query, case, "rows")


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", CASES)
def test_drivers_are_killed_at_each_step(
    spark: SparkSession, sandbox: Sandbox, request: pytest.FixtureRequest, format_: str, kind: str
) -> None:
    """Each dies in the first epoch that it writes: at every step once, then at steps that are drawn."""
    query, case = Scripted(spark, sandbox.root), made(request, sandbox.root, format_, kind)
    draw = random.Random(f"{format_} {kind}")
    steps = [*STEPS, *draw.choices(STEPS, k=KILLS)][:KILLS]
    query.feed(batches(KILLS + 2))
    for step in steps:
        killed_at(sandbox, case, kind, step)
    finished(spark, query, case, kind)


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("format_", CASES)
def test_a_driver_wakes_up_after_its_successor(
    spark: SparkSession,
    sandbox: Sandbox,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    step: str,
) -> None:
    """The successor has written that epoch and the rest of them when it goes on."""
    for module in (controllers, start):
        monkeypatch.setattr(module, "QueryLock", NoLock)
    query, case = Scripted(spark, sandbox.root), made(request, sandbox.root, format_, "rows")
    query.feed(batches(4))
    config = {"root": str(sandbox.root), "format": format_, "place": dict(case.place), "kind": "rows"}
    zombie = sandbox.start(CHILD, {**config, "step": step, "act": "stand still"})
    frozen = sandbox.root / "frozen"
    wait_until("the step", lambda: frozen.exists() or zombie.poll() is not None, 240, pause=0.05)
    assert frozen.exists(), sandbox.log_tail()
    finished(spark, query, case, "rows")
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait(240) != 0, "it was replaced, and has ended as if it were not"
    assert sorted(case.read()) == sorted(wanted("rows", query.fed))
