"""The steps that every start of a query has, with state servers or without: plan; the query's lock, fence and recovery
point (``Controller.start``); and at the end Spark's query.

A step that fails releases what the steps before it have taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

from tailrace.api.definition import AvailableNow, Once, ProcessingTime, QueryDefinition
from tailrace.api.options import CommitMode, WatermarkPolicy, default_state_location
from tailrace.commit.controller import Controller
from tailrace.commit.lock import QueryLock
from tailrace.commit.manifest import Manifest
from tailrace.env.stores.location import open_store
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import PhysicalPlan, plan_query
from tailrace.spark.commit.spark_log import SparkLogFiles, is_local
from tailrace.spark.epoch.time.epoch_clock import refuse_clock_jump
from tailrace.spark.epoch.time.epoch_times import EpochTimes
from tailrace.spark.sinks.contract import SinkRun
from tailrace.spark.sources.inputs import source_rows
from tailrace.spark.sources.inspection import read_once
from tailrace.spark.sources.transforms import frame_of
from tailrace.spark.tasks.row_objects import RowsPlace

_POLICY_CONF = "spark.sql.streaming.multipleWatermarkPolicy"
_RETAIN_CONF = "spark.sql.streaming.minBatchesToRetain"


@dataclass(frozen=True)
class Locations:
    checkpoint: str
    state: str

    @classmethod
    def of(cls, query: QueryDefinition) -> Locations:
        return cls(_absolute(query.checkpoint_location), _absolute(query.state_location))


def plan_started(
    query: QueryDefinition, logs: SparkLogFiles, policy: WatermarkPolicy
) -> tuple[PhysicalPlan, tuple[str, ...]]:
    """The plan, with the commit mode that the sources and the checkpoint's file system allow.

    Also gives why the sources may not give an epoch twice, where they may not.
    """
    plan = replace(plan_query(query), policy=policy)
    once = read_once_of(plan)
    fixed = () if plan.options.commit is CommitMode.SYNC else logs.fixed
    return with_commit(plan, (*once, *fixed)), once


def read_once_of(plan: PhysicalPlan) -> tuple[str, ...]:
    """Why some of the query's sources may not give an epoch twice."""
    frames = [source_rows(stage) for stage in plan.stages if stage.ingests]
    if plan.passed is not None:
        frames.append(frame_of(plan.passed.source))
    return tuple(dict.fromkeys(why for frame in frames for why in read_once(frame)))


def with_commit(plan: PhysicalPlan, once: tuple[str, ...]) -> PhysicalPlan:
    """The plan with a commit that its sources allow. The asynchronous ones may need an epoch again from its source."""
    if plan.options.commit is CommitMode.SYNC or not once:
        return plan
    options = replace(plan.options, commit=CommitMode.SYNC)
    return replace(plan, options=options, commit_reason=f"since {'; '.join(once)}")


def policy_of(spark: SparkSession) -> WatermarkPolicy:
    """What the session says now. A query keeps what it has begun with, as in Spark."""
    return WatermarkPolicy(str(spark.conf.get(_POLICY_CONF, WatermarkPolicy.MIN.value)).lower())


def check_session(spark: SparkSession) -> None:
    """What is wrong with a session is said before the start disturbs a query that runs.

    A restart may have to replay the epoch before the newest: Spark must still know its offsets.
    """
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise AnalysisError(
            "PYSPARK_PIN_THREAD is false, so that Spark may run an epoch's job with what was set for another: unset it"
        )
    kept = int(spark.conf.get(_RETAIN_CONF, "100") or 100)
    if kept < 2:
        raise AnalysisError(
            f"{_RETAIN_CONF} is {kept}, and a restart needs at least 2 epochs of Spark's own log: raise it"
        )


def take_query(
    undo: ExitStack,
    locations: Locations,
    store_options: Mapping[str, str],
    plan: PhysicalPlan,
    logs: SparkLogFiles,
    run: str,
    reread: bool,
) -> Controller:
    """Lock and fence the query, and find its recovery point. ``undo`` releases them."""
    beside = default_state_location(locations.checkpoint)
    if is_local(locations.checkpoint) and locations.state != beside:
        # Two queries with one checkpoint and two state locations: Spark itself would silently stop the first.
        undo.callback(QueryLock(open_store(beside), run).release)
    controller = Controller.start(
        open_store(locations.state, store_options),
        fingerprint(plan),
        logs,
        run=run,
        retain=plan.options.retain,
        compare=_refuse_differences,
        check=partial(_refuse_wrong_clock, plan),
        reread=reread,
    )
    undo.callback(controller.close)
    return controller


def store_options_of(plan: PhysicalPlan) -> dict[str, str]:
    """A store's request that hangs is noticed after the same time as a server that hangs."""
    return {"stall_s": f"{plan.options.heartbeat_timeout / 1e6:g}"}


def sink_run_of(controller: Controller, place: RowsPlace) -> SinkRun:
    return SinkRun(
        controller.run,
        controller.retain,
        controller.store,
        controller.check_newest,
        controller.query_id,
        controller.fence,
        controller.recovery_point.released,
        place,
    )


def start_spark_query(
    query: QueryDefinition, batches: DataFrame, checkpoint: str, run_epoch: Callable[[DataFrame, int], None]
) -> SparkQuery:
    writer = DataStreamWriter(batches).foreachBatch(run_epoch).option("checkpointLocation", _for_spark(checkpoint))
    if query.name is not None:
        writer = writer.queryName(query.name)
    match query.trigger:
        case AvailableNow():
            writer = writer.trigger(availableNow=True)
        case Once():
            writer = writer.trigger(once=True)
        case ProcessingTime(interval):
            writer = writer.trigger(processingTime=f"{interval // 1000} milliseconds")
    try:
        return writer.start()
    except PySparkException as error:
        raise CheckpointError(
            f"Spark could not start the query on checkpointLocation {checkpoint}: {str(error)[:1000]}"
        ) from error


def _refuse_wrong_clock(plan: PhysicalPlan, newest: Manifest) -> None:
    if any(stage.operator.ends_by_clock for stage in plan.stages):
        refuse_clock_jump(EpochTimes.from_json(newest.epoch_config).now, plan.options.max_clock_jump)


def _refuse_differences(stored: object, now: object) -> None:
    found = differences(stored, now)  # type: ignore[arg-type]
    if found:
        raise CheckpointError(
            "The state was made by another query, and this one cannot go on with it. What differs: "
            + "; ".join(found)
            + ". Undo the change, or start with a new checkpointLocation (and stateLocation)."
        )


def _for_spark(location: str) -> str:
    """With its scheme: Spark would look for a bare path on its default file system, which may be another.

    Not as a URI: Spark decodes nothing, and would take "%20" for part of a folder's name.
    """
    return f"file:{open_store(location).uri}" if is_local(location) else location


def _absolute(location: str) -> str:
    if not is_local(location) or location.lower().startswith("file:"):
        return location
    return os.path.abspath(os.path.expanduser(location))
