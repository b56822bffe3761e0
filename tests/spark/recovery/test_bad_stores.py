"""Queries whose state is on a store that goes bad: they finish right, or stop with an error that says what to do.

A real S3 server is reached through the lab's proxy; the disk is full for real where this user may mount one. After the
cause is removed the same query goes on, and its rows are the oracle's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.crash.tiny_disk import TinyDisk, tiny_disk
from support.processes import session_server_folders, session_servers, wait_until
from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
from tailrace.env.randomness import short_id
from tailrace.env.stores.local_copy import copies_of
from tailrace.env.stores.location import open_store
from tailrace.errors import TailraceError
from tailrace.lab.servers.s3 import S3Server
from tailrace.lab.servers.shaping_proxy import ShapingProxy

GOOD = {"errors": 0, "refuse": False, "vanish": False, "hang": False, "hang_next": 0, "lose_next": 0}
LONG_SYNC = pytest.param("sync", marks=pytest.mark.long)


@pytest.fixture
def environment(spark: SparkSession, monkeypatch: Any) -> Iterator[dict[str, str]]:
    """Variables put in here are the driver's and, from the next query on, the executors'."""
    given = spark.sparkContext.environment
    before = dict(given)

    class Both(dict[str, str]):
        def update(self, values: dict[str, str]) -> None:  # type: ignore[override]
            given.update(values)
            for name, value in values.items():
                monkeypatch.setenv(name, value)

    yield Both()
    given.clear()
    given.update(before)


@pytest.fixture
def way(s3: S3Server, proxy: ShapingProxy, environment: dict[str, str]) -> Iterator[ShapingProxy]:
    environment.update(s3.environment(proxy.endpoint))
    yield proxy
    proxy.change(**GOOD)


def far(s3: S3Server, mode: str, **more: str) -> dict[str, str]:
    return {"stateLocation": s3.uri(f"query-{short_id()}"), "commit": mode, **more}


def nothing_is_left() -> None:
    wait_until("the servers' end", lambda: not session_servers(), 10)
    wait_until("the end of their folders", lambda: not session_server_folders(), 10)


def at_epoch(query: Scripted, epoch: int, do: Any) -> None:
    """Call once when that epoch reaches the sink."""
    save = query.output.save
    done: list[int] = []

    def saved(batch: DataFrame, number: int) -> None:
        if number == epoch and not done:
            done.append(number)
            do()
        save(batch, number)

    query.output.save = saved  # type: ignore[method-assign]


def stops_and_continues(query: Scripted, options: dict[str, str], begin: Any, end: Any, error: str) -> None:
    """Goes bad in the middle of a run; the next one has more to do than that one had left."""
    every = batches(6)
    query.feed(every[:4])
    at_epoch(query, 2, begin)
    with pytest.raises(TailraceError, match=error):
        query.run(**options)
    nothing_is_left()
    end()
    query.feed(every[4:])
    query.run(**options)
    query.check()
    nothing_is_left()
    if "localLocation" not in options:  # a query that failed keeps them: the next start is faster
        assert not copies_of(open_store(options["stateLocation"]), None).root.exists()


@pytest.mark.parametrize("mode", [LONG_SYNC, "async"])
def test_a_store_that_fails_a_fifth_of_its_requests(
    spark: SparkSession, tmp_path: Path, s3: S3Server, way: ShapingProxy, mode: str
) -> None:
    seed = int(os.environ.get("TAILRACE_SEED") or int(short_id(), 16))
    print("TAILRACE_SEED", seed)
    query = Scripted(spark, tmp_path, WINDOWED)
    options = far(s3, mode)
    every = batches(6)
    way.change(errors=0.2, seed=seed)
    before = way.counts()
    for part in (every[:4], every[4:]):
        query.feed(part)
        query.run(**options)
    query.check()
    after = way.counts()
    failed = sum(after.get(name, 0) - before.get(name, 0) for name in ("unavailable", "broken_before", "broken_after"))
    print(f"{failed} of {after['requests'] - before['requests']} requests failed")
    assert failed > 0


@pytest.mark.parametrize("mode", [LONG_SYNC, "async"])
@pytest.mark.parametrize(
    ("switch", "error"),
    [
        pytest.param("refuse", r": the store refuses the credentials .*AWS_ACCESS_KEY_ID.*start the", id="refuse"),
        pytest.param("vanish", r": there is no such bucket.*bring it back", id="vanish", marks=pytest.mark.long),
    ],
)
def test_a_store_that_refuses_stops_the_query_and_lets_it_continue(
    spark: SparkSession, tmp_path: Path, s3: S3Server, way: ShapingProxy, switch: str, error: str, mode: str
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)

    def turn(on: bool) -> Any:
        return lambda: way.change(**{switch: on})

    options = far(s3, mode)
    stops_and_continues(query, options, turn(True), turn(False), rf"{options['stateLocation']}/.*{error}")


@pytest.fixture
def disk(tmp_path: Path, environment: dict[str, str]) -> Iterator[TinyDisk]:
    with tiny_disk(tmp_path / "disk") as tiny:
        environment.update(tiny.environment())
        yield tiny


@pytest.mark.long
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_full_disk_stops_the_query_and_lets_it_continue(
    spark: SparkSession, tmp_path: Path, disk: TinyDisk, mode: str
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    options = {"stateLocation": str(disk.root / "state"), "commit": mode}
    error = rf"Cannot write {disk.root}/state/.*: No space left on device. Free some space there, then start the query"
    stops_and_continues(query, options, disk.fill, disk.free, error)


def test_a_full_disk_for_the_local_copies_stops_the_query_and_lets_it_continue(
    spark: SparkSession, tmp_path: Path, disk: TinyDisk, s3: S3Server, way: ShapingProxy
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    options = far(s3, "async", localLocation=str(disk.root / "copies"))
    error = rf"Cannot write {disk.root}/copies/.*: No space left on device. Free some space there, then start the query"
    stops_and_continues(query, options, disk.fill, disk.free, error)


@pytest.mark.long
def test_a_store_that_is_silent_for_long_stops_the_query(
    spark: SparkSession, tmp_path: Path, s3: S3Server, way: ShapingProxy
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    options = far(s3, "async", commitTimeout="10 seconds")
    error = r"Epoch 2 did not become durable within \d+ s: it is still (uploading|writing)"
    stops_and_continues(query, options, lambda: way.change(hang=True), lambda: way.change(hang=False), error)


@pytest.mark.long
def test_requests_that_hang_do_not_stop_it(
    spark: SparkSession, tmp_path: Path, s3: S3Server, way: ShapingProxy
) -> None:
    query = Scripted(spark, tmp_path, ROLLING)
    query.feed(batches(4))
    at_epoch(query, 1, lambda: way.change(hang_next=2, lose_next=2))
    query.run(**far(s3, "async"))
    query.check()
