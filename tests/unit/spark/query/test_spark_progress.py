"""What of Tailrace's progress goes into Spark's, and that a query runs where none of it can."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.spark.epoch.progress import Durations, EpochProgress, OperatorProgress, QueryIdentity
from tailrace.spark.query import spark_progress

OPERATOR = OperatorProgress(
    name="aggregate", kind="rolling aggregate", store="RMW", shards=64, servers=2, rows=10, updated=4, state_bytes=1000,
    state_disk_bytes=50, input_rows=7, output_rows=3, late_rows=2, null_time_rows=1, spilled_bytes=0, apply_ms=1.6,
    advance_ms=0.2, metrics={"spilledHits": 5, "prefetchHitRatio": 0.9, "spaceAmplification": 1.5, "readCpuMs": 2.7},
)  # fmt: skip
EPOCH = EpochProgress(
    query=QueryIdentity("0011", "q", "id", "run"), operators=(OPERATOR,), epoch=7, tries=1, started=0.0, input_rows=9,
    partials=7, output_rows=3, watermark=1_500_000, time_max=2_000_000, memory_bytes_max=1 << 30, staged_bytes=0,
    servers=2, combined=True, replayed=False,
    duration_ms=Durations(ingest=12.4, add_batch=20.0, async_commit=3.6),
)  # fmt: skip


def spark_says(**changes: Any) -> dict[str, Any]:
    said = {"id": "id", "runId": "run", "batchId": 7, "durationMs": {"addBatch": 21, "walCommit": 2}}
    return {**said, "stateOperators": [], "sources": [{"numInputRows": 9}], "sink": {"description": "s"}, **changes}


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_progress, "_runs", {"run": [EPOCH]})


def test_an_epoch_of_ours_is_completed() -> None:
    made = spark_progress.completed(spark_says())
    assert made is not None
    assert made["eventTime"] == {"max": "1970-01-01T00:00:02.000Z", "watermark": "1970-01-01T00:00:01.500Z"}
    assert made["durationMs"]["addBatch"] == 21, "Spark's own, which is all of the call"
    assert (made["durationMs"]["ingest"], made["durationMs"]["walCommit"]) == (12, 2)
    assert made["sink"] == {"description": "s", "numOutputRows": 3} and made["sources"] == [{"numInputRows": 9}]
    (state,) = made["stateOperators"]
    assert (state["numRowsTotal"], state["numRowsUpdated"], state["numRowsDroppedByWatermark"]) == (10, 4, 2)
    assert (state["commitTimeMs"], state["allUpdatesTimeMs"], state["numStateStoreInstances"]) == (4, 2, 2)
    assert state["customMetrics"] == {
        "numInputRows": 7,
        "numOutputRows": 3,
        "numRowsDroppedWithoutEventTime": 1,
        "diskUsedBytes": 50,
        "spilledBytes": 0,
        "spilledHits": 5,
        "readCpuMs": 3,
    }, "whole numbers, as Spark has them"


@pytest.mark.parametrize("of_others", [{"runId": "another"}, {"batchId": 8}], ids=str)
def test_others_are_left_as_they_are(of_others: dict[str, Any]) -> None:
    assert spark_progress.completed(spark_says(**of_others)) is None


def test_a_spark_that_cannot_be_listened_to_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace())
    with caplog.at_level(logging.WARNING, "tailrace"):
        spark_progress.report_to_listeners(session)
    assert "will not see the state of this query" in caplog.text
