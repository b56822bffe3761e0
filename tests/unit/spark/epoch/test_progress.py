"""The progress of an epoch: an entry for each operator, totals, and Spark's names where it has them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tailrace as tr
from support.bids import bids
from tailrace.api.options import Options
from tailrace.api.relations import OutputMode
from tailrace.api.windows import session_window, window
from tailrace.operators.metrics import with_ratios
from tailrace.operators.registry import progress_name
from tailrace.plan.physical import PhysicalPlan, plan_relation
from tailrace.server.transport.server_status import OperatorStatus
from tailrace.spark.epoch.progress import Durations, EpochProgress, OperatorProgress, QueryIdentity

# Of Spark 4's StateOperatorProgress; the two that say when records are removed one by one have no meaning here.
SPARKS_KEYS = {
    "operatorName", "numRowsTotal", "numRowsUpdated", "allUpdatesTimeMs", "allRemovalsTimeMs", "memoryUsedBytes",
    "numRowsDroppedByWatermark", "numShufflePartitions", "numStateStoreInstances", "customMetrics",
}  # fmt: skip


def plan() -> PhysicalPlan:
    """The median of each session, and how many sessions end in each minute."""
    first = bids().withWatermark("ts", "1 second").groupBy(session_window("ts", "10 seconds"), "auction")
    second = first.agg(tr.median("price").alias("m")).groupBy(window("session_window", "1 minute")).agg(tr.count())
    return plan_relation(second.source, OutputMode.APPEND, Options(shards=16))


def status(name: str, rows: int, **metrics: float) -> OperatorStatus:
    return OperatorStatus(
        name=name,
        rows=rows,
        state_bytes=10 * rows,
        state_disk_bytes=100 * rows,
        input_rows=2 * rows,
        updated=rows - 1,
        spilled_bytes=rows,
        output_rows=rows + 1,
        apply_ms=0.5 * rows,
        advance_ms=0.25 * rows,
        metrics=metrics,
    )


@pytest.fixture
def progress() -> EpochProgress:
    stages = plan().stages
    statuses = [
        [status("aggregate", 4, prefetchHits=3, prefetchMisses=1, diskBytes=30, diskLiveBytes=20, compactions=1),
         status("aggregate", 6, prefetchHits=6, prefetchMisses=0, diskBytes=30, diskLiveBytes=20, compactions=2)],
        [status("aggregate-2", 1, segments=0), status("aggregate-2", 1, segments=0)],
    ]  # fmt: skip
    dropped = [(5, 2), (1, 0)]
    return EpochProgress(
        query=QueryIdentity("0011223344556677", "q", "id", "run id"),
        operators=tuple(
            OperatorProgress.of(stage, of, *rows) for stage, of, rows in zip(stages, statuses, dropped, strict=True)
        ),
        epoch=7,
        tries=1,
        started=0.0,
        input_rows=100,
        partials=20,
        output_rows=4,
        watermark=1_000_000,
        time_max=2_000_000,
        memory_bytes_max=1 << 30,
        staged_bytes=1000,
        servers=2,
        combined=True,
        replayed=False,
        since_last_s=0.5,
        duration_ms=Durations(add_batch=10.0, async_commit=3.25),
    )


def test_each_operator_has_an_entry(progress: EpochProgress) -> None:
    first, second = progress["stateOperators"]
    assert (first["operatorName"], first["operatorKind"], first["store"]) == (
        "aggregate", "session window aggregate", "AUR"
    )  # fmt: skip
    assert (second["operatorName"], second["operatorKind"], second["store"]) == (
        "aggregate-2", "tumbling window aggregate", "RMW"
    )  # fmt: skip
    for entry in (first, second):
        assert set(entry) >= SPARKS_KEYS
    assert (first["numRowsTotal"], first["numRowsUpdated"], first["numInputRows"]) == (10, 8, 20)
    assert (first["memoryUsedBytes"], first["diskUsedBytes"], first["numOutputRows"]) == (100, 1000, 12)
    assert (first["numRowsDroppedByWatermark"], first["numRowsDroppedWithoutEventTime"]) == (5, 2)
    assert (first["allUpdatesTimeMs"], first["allRemovalsTimeMs"]) == (3.0, 1.5), "the slowest server's"
    assert (first["numShufflePartitions"], first["numStateStoreInstances"]) == (16, 2)
    assert first["customMetrics"] == {
        "prefetchHits": 9,
        "prefetchMisses": 1,
        "compactions": 3,
        "prefetchHitRatio": 0.9,
        "spaceAmplification": 1.5,
    }
    assert (second["numRowsTotal"], second["numRowsDroppedByWatermark"]) == (2, 1)
    assert second["customMetrics"] == {"segments": 0}


def test_rates_and_durations_have_the_names_of_spark(progress: EpochProgress) -> None:
    assert progress["inputRowsPerSecond"] == 200.0, "by the time since the epoch before"
    assert progress["processedRowsPerSecond"] == 10_000.0, "by the time that the epoch took"
    assert replace(progress, since_last_s=0.0)["inputRowsPerSecond"] == 0.0, "a run's first epoch"
    durations = progress["durationMs"]
    assert (durations["addBatch"], durations["asyncCommit"], durations["sink"]) == (10.0, 3.25, 0.0)


def test_totals_are_of_all_operators(progress: EpochProgress) -> None:
    state = progress["state"]
    assert state["numRowsTotal"] == progress.state_rows == 12
    assert state["numRowsDroppedByWatermark"] == progress.late_rows == 6
    assert state["numRowsDroppedWithoutEventTime"] == progress.null_time_rows == 2
    assert state["memoryUsedBytes"] == progress.state_bytes == 120
    assert state["diskUsedBytes"] == progress.state_disk_bytes == 1200
    assert progress.state_rows_updated == 8
    assert progress["ingest"]["spilledBytes"] == progress.spilled_bytes == 12
    assert json.loads(progress.json) == progress.asDict()


def test_no_ratio_is_made_of_nothing() -> None:
    assert with_ratios([]) == {}
    assert with_ratios([{"prefetchHits": 0, "prefetchMisses": 0, "diskBytes": 5, "diskLiveBytes": 0}]) == {
        "prefetchHits": 0,
        "prefetchMisses": 0,
    }


def test_every_kind_has_a_name() -> None:
    rolling = plan_relation(bids().groupBy("auction").count().source, OutputMode.UPDATE, Options()).operator
    assert progress_name(rolling) == "rolling aggregate"
