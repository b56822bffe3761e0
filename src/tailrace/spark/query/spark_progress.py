"""What Tailrace knows of an epoch, in Spark's own progress of it, for listeners, Spark's UI and ``spark.streams``.

Spark makes its progress when the epoch's batch function has returned, and then tells its listeners, one after another
and in a thread of its own. Ours is the first and completes the progress, so that all others see it complete. A progress
that cannot be completed stays as Spark has made it: what is reported never ends a query.

Threads: epochs and starts write, the thread of the listeners reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.errors import AnalysisError
from tailrace.spark.epoch.progress import EpochProgress, Epochs, OperatorProgress, QueryIdentity
from tailrace.spark.private import ProgressListener, listen_first, streaming_ids

_NO_WHOLE_NUMBERS = ("Ratio", "Amplification")
"""Ends of the metrics' names that Spark's progress, which has whole numbers only, cannot have."""
_log = logging.getLogger("tailrace")
_runs: dict[str, Sequence[EpochProgress]] = {}  # by Spark's id of the run


def report_to_listeners(spark: SparkSession) -> None:
    """Before the query's first event."""
    try:
        listen_first(spark, _LISTENER)
    except AnalysisError as error:
        _log.warning("Spark's listeners and its UI will not see the state of this query: %s", error)


class ReportedRunner:
    """Spark's batch function, which says whose epochs it runs before the first of them."""

    def __init__(self, runner: Epochs) -> None:
        self._runner = runner

    def __call__(self, batch: DataFrame, epoch: int) -> object:
        runner = self._runner
        if not runner.identity.run_id:
            query, run = streaming_ids(batch.sparkSession)
            runner.identity = QueryIdentity(runner.identity.run, runner.identity.name, query, run)
            _runs[run] = runner.progress
        return runner.run(batch, epoch)


def completed(theirs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Spark's progress as JSON, with Tailrace's in it; None where the epoch is none of ours."""
    epochs = _runs.get(theirs["runId"], ())
    ours = next((each for each in reversed(list(epochs)) if each.epoch == theirs["batchId"]), None)
    if ours is None:
        return None
    ours.spark.update(theirs)
    durations = {name: round(ms) for name, ms in ours.duration_ms.to_json().items()}
    return {
        **theirs,
        "durationMs": {**durations, **theirs["durationMs"]},
        "eventTime": ours.event_time() or theirs["eventTime"],
        "stateOperators": [_state_operator(each, round(ours.duration_ms.async_commit)) for each in ours.operators],
        "sink": {**theirs["sink"], "numOutputRows": ours.output_rows},
    }


def _state_operator(of: OperatorProgress, commit_ms: int) -> dict[str, Any]:
    """With all the keys of Spark's, and no others: the rest are custom metrics."""
    ours = of.to_json()
    names = ("numInputRows", "numOutputRows", "numRowsDroppedWithoutEventTime", "diskUsedBytes", "spilledBytes")
    metrics = {name: value for name, value in of.metrics.items() if not name.endswith(_NO_WHOLE_NUMBERS)}
    return {
        "operatorName": of.name,
        "numRowsTotal": of.rows,
        "numRowsUpdated": of.updated,
        "allUpdatesTimeMs": round(of.apply_ms),
        "numRowsRemoved": 0,  # nobody counts them
        "allRemovalsTimeMs": round(of.advance_ms),
        "commitTimeMs": commit_ms,
        "memoryUsedBytes": of.state_bytes,
        "numRowsDroppedByWatermark": of.late_rows,
        "numShufflePartitions": of.shards,
        "numStateStoreInstances": of.servers,
        "customMetrics": {name: round(value) for name, value in {**{n: ours[n] for n in names}, **metrics}.items()},
    }


def _ended(run: str) -> None:
    _runs.pop(run, None)


_LISTENER = ProgressListener(completed, _ended)
