"""Queries whose broker or database stops, starts again, or has no room left: they wait or end, as configured, and in
the end each row is there once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.crash.tiny_disk import tiny_disk
from support.processes import wait_until
from support.queries.simple import Scripted, batches
from support.queries.table_queries import wanted, writer_of
from support.sinks.cases import Case, KafkaCase, PostgresCase
from tailrace.errors import TableError
from tailrace.lab.servers.kafka import KafkaBroker
from tailrace.lab.servers.postgres import PostgresServer

pytestmark = pytest.mark.long
KINDS = ("kafka", "postgresql")
_DOWN_S = 8.0
"""For so long a server is gone: some tries fail meanwhile."""


@contextmanager
def served(format_: str) -> Iterator[tuple[Any, Case]]:
    """A server of the test's own, with an empty table."""
    with ExitStack() as undo:
        server: Any = undo.enter_context(KafkaBroker() if format_ == "kafka" else PostgresServer())
        yield server, case_of(server)


def case_of(server: Any) -> Case:
    place = {"table": "out", "upsert": ""}
    if isinstance(server, KafkaBroker):
        case: Case = KafkaCase({**place, "bootstrap": server.bootstrap})
    else:
        case = PostgresCase({**place, "url": server.url})
    case.create()
    return case


def complete(query: Scripted, case: Case) -> None:
    assert case.read() == wanted("rows", query.fed)


@pytest.mark.parametrize("format_", KINDS)
def test_a_query_waits_for_its_server(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))
    with served(format_) as (server, case):
        started = writer_of(spark, query.path, "rows", case).start()
        try:
            for more in (4, 6):
                started.processAllAvailable()
                server.kill()
                query.feed(batches(more)[more - 2 :])
                time.sleep(_DOWN_S)
                assert started.isActive
                server.restart()
            started.processAllAvailable()
            complete(query, case)
        finally:
            started.stop()


@pytest.mark.parametrize("format_", KINDS)
def test_a_query_ends_without_its_server_and_goes_on_with_it(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))
    with served(format_) as (server, case):
        started = writer_of(spark, query.path, "rows", case).option("sinkTimeout", "0 seconds").start()
        started.processAllAvailable()
        server.kill()
        query.feed(batches(4)[2:])
        with pytest.raises(TableError, match="sinkTimeout"):
            started.awaitTermination(240)
        server.restart()
        again = writer_of(spark, query.path, "rows", case).trigger(availableNow=True).start()
        again.awaitTermination()
        complete(query, case)


def test_a_query_waits_until_the_brokers_disk_has_room(spark: SparkSession, tmp_path: Path) -> None:
    """The broker ends itself when its only disk is full: it is started again once there is room."""
    query = Scripted(spark, tmp_path)
    query.feed(batches(2))
    with tiny_disk(tmp_path / "disk", size_mb=96) as tiny:
        if not tiny.mounted:
            pytest.skip("needs a disk of its own: only root may mount one")
        with KafkaBroker({"log.dirs": str(tiny.root / "data")}) as broker:
            case = case_of(broker)
            started = writer_of(spark, query.path, "rows", case).start()
            try:
                started.processAllAvailable()
                tiny.fill()
                query.feed(batches(4, rows=20_000)[2:])
                wait_until("the broker to end", lambda: not broker.runs, 120)
                assert started.isActive
                tiny.free()
                broker.restart()
                started.processAllAvailable()
                complete(query, case)
            finally:
                started.stop()
