"""Starting a query with state servers: from its plan to a running Spark query.

Order: the steps of every start (``start``); the sinks; servers started and loaded; another look at Spark's logs, to
which the JVM of a killed driver may have written meanwhile; Spark's query.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tailrace.api.definition import QueryDefinition
from tailrace.api.options import Route
from tailrace.commit.controller import Controller
from tailrace.env.randomness import new_run_id, new_token
from tailrace.errors import AnalysisError
from tailrace.ids import NO_EPOCH
from tailrace.plan.explain import explain
from tailrace.plan.physical import PhysicalPlan, Stage
from tailrace.server.transport.server_config import TCP, Access, ServerConfig
from tailrace.spark import private
from tailrace.spark.commit.spark_log import SparkLogFiles
from tailrace.spark.epoch.epoch_config import recorded_policy
from tailrace.spark.epoch.progress import QueryIdentity
from tailrace.spark.epoch.runner import EpochRunner
from tailrace.spark.epoch.time.idle_epochs import IdleEpochs, has_idle_epochs
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.processors.initial_state import with_initial_states
from tailrace.spark.query import start
from tailrace.spark.query.query import Failure, Running
from tailrace.spark.query.spark_progress import ReportedRunner, report_to_listeners
from tailrace.spark.servers.encryption import encryption
from tailrace.spark.servers.executors import transport_of
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.servers.scout import Scout
from tailrace.spark.sinks.late_rows import LateOutput, late_schema
from tailrace.spark.sinks.sinks import late_sink_of, sink_of
from tailrace.spark.sources.inputs import clocks_of, ingested, rows_by_input, source_rows
from tailrace.spark.sources.inspection import numbers_tasks
from tailrace.spark.sources.splits import InputSplits
from tailrace.spark.sources.ticks import Ticks
from tailrace.spark.tasks.row_objects import RowsPlace


def start_with_servers(spark: SparkSession, query: QueryDefinition, budget: RetryBudget) -> Running:
    """One run of the query."""
    locations = start.Locations.of(query)
    logs = SparkLogFiles(spark, locations.checkpoint)
    plan, once = start.plan_started(query, logs, start.policy_of(spark))
    start.check_session(spark)
    sink = sink_of(query, spark)
    late_sink = None if query.late is None else late_sink_of(query.late, spark)
    if late_sink is not None:
        late_schema(_late_rows(plan))  # refuses names before anything is disturbed
    store_options = start.store_options_of(plan)
    run, failure = new_run_id(), Failure()
    with ExitStack() as undo:
        controller = start.take_query(undo, locations, store_options, plan, logs, run, reread=not once)
        if controller.recovery_point.epoch == NO_EPOCH:
            plan = with_initial_states(plan)
        sinks = [sink] if late_sink is None else [sink, late_sink]
        place = RowsPlace(locations.state, store_options)
        sink_run = start.sink_run_of(controller, place)
        for each in sinks:
            undo.callback(each.close)
            each.open(sink_run)
        outputs = tuple(folder for each in sinks if (folder := each.shared_folder()) is not None)
        transport = transport_of(spark, plan.options.transport)
        config = replace(
            _server_config(plan, controller, run, locations.state, store_options),
            outputs=outputs,
            transport=transport,
            tls=encryption(spark, plan.options.encryption, run) if transport == TCP else None,
        )
        fleet = Fleet(spark, config, plan.shards, plan.options.heartbeat_timeout / 1e6, plan.options.state_servers)
        undo.callback(lambda: fleet.close(keep=failure.comes_again))
        fleet.open(controller.recovery_point.manifest, budget)
        undo.callback(Scout(fleet, partial(private.executors, spark)).stop)
        replayed = _replayed_config(controller)
        plan = _as_replayed(plan, replayed)
        recorded = {**controller.recovery_point.manifest.epoch_config, **replayed}
        plan = replace(plan, policy=recorded_policy(recorded, plan.policy))
        hints = HintPlan.of(plan)
        splits = InputSplits(spark, _shuffled(plan, replayed, len(fleet.servers), spark), replayed.get("splits"))
        undo.callback(splits.release)
        late = None
        if late_sink is not None:
            late = LateOutput(late_sink, place, run, _late_rows(plan))
        idle = None
        ticks = Ticks(run, controller.recovery_point.planned) if has_idle_epochs(plan) else None
        if ticks is not None:
            idle = IdleEpochs(plan, ticks, controller.recovery_point.planned + 1)
            undo.callback(idle.close)
        runner = EpochRunner(
            plan,
            controller,
            fleet,
            sink,
            QueryIdentity(run, query.name),
            splits,
            budget,
            late,
            HintControl(plan, hints),
            idle,
        )
        undo.callback(runner.close)
        late_place = None if late is None else late.place
        receipts = _receipts(plan, hints, config.access, splits.shuffled, late_place)
        if ticks is not None:
            receipts = receipts.union(ticks.receipts(spark))
        controller.trim_spark_logs()
        report_to_listeners(spark)
        run_epoch = failure.keeping(ReportedRunner(runner))
        started = start.start_spark_query(query, receipts, locations.checkpoint, run_epoch)
        # Tasks that send to a silent server on another machine would wait for it: the epoch begins anew.
        group = str(started.runId)
        fleet.has_jobs = lambda: _has_jobs(spark.sparkContext, group)
        fleet.cancel_jobs = lambda: spark.sparkContext.cancelJobGroup(group)
        text, release = explain(plan, query), undo.pop_all().close
        return Running(started, runner, text, failure, release, controller.check_newest)


def _late_rows(plan: PhysicalPlan) -> StructType:
    """The columns of rows that come too late."""
    ingesting = [stage for stage in plan.stages if stage.ingests]
    if len(ingesting) > 1:
        names = " and ".join(stage.operator.name for stage in ingesting)
        raise AnalysisError(
            f"lateRows: rows of this query's streams go to {names}, and late rows of both would have other columns: "
            f"remove it, or write the results of one of them first and stream from these"
        )
    return source_rows(ingesting[0]).schema


def _receipts(plan: PhysicalPlan, hints: HintPlan, access: Access, shuffled: int, late: RowsPlace | None) -> DataFrame:
    """What the streaming plan gives: the receipts of all tasks that ingest the user's streams."""

    def of(stage: Stage) -> DataFrame:
        frames = rows_by_input(stage, lambda source: hints.placed(source, access))
        return reduce(DataFrame.union, [by_input(stage, rows, (n, len(frames))) for n, rows in enumerate(frames)])

    def by_input(stage: Stage, rows: DataFrame, input_: tuple[int, int]) -> DataFrame:
        ordered = not numbers_tasks(rows)
        made = ingested(
            rows,
            stage.operator,
            plan,
            access,
            shuffled,
            late,
            hints.ingest,
            ordered_by_rows=ordered,
            input_=input_,
            clocks=tuple(map(tuple, clocks_of(stage.relation))),
        )
        return made

    return reduce(DataFrame.union, [of(stage) for stage in plan.stages if stage.ingests])


def _server_config(
    plan: PhysicalPlan, controller: Controller, run: str, state_location: str, store_options: Mapping[str, str]
) -> ServerConfig:
    return ServerConfig(
        run=run,
        token=new_token(),
        operators=tuple(stage.operator.to_json() for stage in plan.stages),
        store_uri=state_location,
        memory_bytes=plan.options.memory_bytes,
        tuning=plan.tuning,
        proof=(controller.fence_name, run),
        store_options=store_options,
        function_timeout_s=plan.options.function_timeout / 1e6,
        copies=plan.options.keeps_copies,
        copies_location=plan.options.local_location or None,
        record_folder=plan.options.record_folder,
    )


def _has_jobs(context: SparkContext, group: str) -> bool:
    tracker = context.statusTracker()
    return not set(tracker.getActiveJobsIds()).isdisjoint(tracker.getJobIdsForGroup(group))


def _replayed_config(controller: Controller) -> Mapping[str, Any]:
    """The config of the epoch that the run begins with, where it is replayed; empty where nothing is."""
    recovery_point = controller.recovery_point
    if recovery_point.replay is not None:
        return recovery_point.replay.epoch_config
    if recovery_point.epoch < recovery_point.planned:
        return controller.recorded_epoch_config(recovery_point.epoch + 1) or recovery_point.manifest.epoch_config
    return {}


def _as_replayed(plan: PhysicalPlan, recorded: Mapping[str, Any]) -> PhysicalPlan:
    """The plan with the route of an epoch that will be replayed: another one might add doubles in another order."""
    if "route" not in recorded:
        return plan
    return replace(plan, options=replace(plan.options, route=Route(recorded["route"])))


def _shuffled(plan: PhysicalPlan, recorded: Mapping[str, Any], servers: int, spark: SparkSession) -> int:
    """Into how many tasks Spark's shuffle brings an epoch's rows; 0 where they are not shuffled."""
    if plan.options.route is not Route.SHUFFLE:
        return 0
    return int(recorded.get("shuffled", 0)) or max(servers, spark.sparkContext.defaultParallelism)
