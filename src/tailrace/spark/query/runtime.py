"""Starting a query: from what the user wrote to a running Spark query with its servers.

Order: plan; the query's lock, fence and recovery point (``Controller.start``); servers started and loaded; another look
at Spark's logs, to which the JVM of a killed driver may have written meanwhile; Spark's query. A step that fails
releases what the steps before it have taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery as SparkQuery
from pyspark.sql.types import StructType

from tailrace.api.columns import Named
from tailrace.api.definition import AvailableNow, Once, ProcessingTime, QueryDefinition
from tailrace.api.options import CommitMode, Options, Route, WatermarkPolicy, default_state_location
from tailrace.api.processors import ProcessorCode, TimeMode
from tailrace.api.relations import OutputMode, Relation, SparkHop
from tailrace.api.runtime import Projected
from tailrace.api.stream import Stream
from tailrace.api.tables import LookupTable
from tailrace.commit.controller import Controller
from tailrace.commit.lock import QueryLock
from tailrace.commit.manifest import Manifest
from tailrace.env.randomness import new_run_id, new_token
from tailrace.env.stores.location import open_store
from tailrace.errors import AnalysisError, CheckpointError
from tailrace.ids import NO_EPOCH
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import PhysicalPlan, Stage, plan_query, plan_relation
from tailrace.server.transport.server_config import TCP, Access, ServerConfig
from tailrace.spark.commit.spark_log import SparkLogFiles, is_local
from tailrace.spark.epoch.epoch_config import recorded_policy
from tailrace.spark.epoch.progress import QueryIdentity
from tailrace.spark.epoch.runner import EpochRunner
from tailrace.spark.epoch.time.epoch_clock import refuse_clock_jump
from tailrace.spark.epoch.time.epoch_times import EpochTimes
from tailrace.spark.epoch.time.idle_epochs import IdleEpochs, has_idle_epochs
from tailrace.spark.hints.control import HintControl
from tailrace.spark.hints.lookahead import Lookahead, lookahead_lines
from tailrace.spark.hints.plan import HintPlan
from tailrace.spark.processors.code import TIMEOUTS, group_state_code, processor_code, struct_of, timezone_of
from tailrace.spark.processors.initial_state import initial_of, with_initial_states
from tailrace.spark.query.query import Failure, Running, StreamingQuery
from tailrace.spark.query.spark_progress import ReportedRunner, report_to_listeners
from tailrace.spark.query.stream_manager import replace_stream_manager
from tailrace.spark.servers.encryption import encryption
from tailrace.spark.servers.fleet import Fleet
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.servers.placement import refuse_dynamic_allocation, transport_of
from tailrace.spark.sinks.contract import SinkRun
from tailrace.spark.sinks.late_rows import LateOutput, late_schema
from tailrace.spark.sinks.sinks import late_sink_of, sink_of
from tailrace.spark.sources.computed import with_columns
from tailrace.spark.sources.hops import hop_over
from tailrace.spark.sources.inputs import ingested, rows_by_input, source_rows
from tailrace.spark.sources.inspection import check_source, kept_time, numbers_tasks, read_once
from tailrace.spark.sources.projection import Asked, Projection
from tailrace.spark.sources.schema import fields_of
from tailrace.spark.sources.splits import InputSplits
from tailrace.spark.sources.static_join import enriched
from tailrace.spark.sources.ticks import Ticks
from tailrace.spark.sources.transforms import Transformed, frame_of, then, transformed
from tailrace.spark.tasks.late_rows import LatePlace
from tailrace.types import Field

_POLICY_CONF = "spark.sql.streaming.multipleWatermarkPolicy"
_RETAIN_CONF = "spark.sql.streaming.minBatchesToRetain"


def stream(source: DataFrame) -> Stream:
    """A stream of a streaming DataFrame's rows, to be grouped and aggregated by Tailrace.

    Everything stateless (``select``, ``where``, ``withColumn``, joins with static tables) may stand before it, and be
    said of the stream itself, in the same words.
    """
    frame = check_source(source)
    return Stream(frame, fields_of(frame.schema), SparkRuntime(frame.sparkSession))


class SparkRuntime:
    """Starts and explains queries in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def ansi(self) -> bool:
        return str(self._spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"

    def fields(self, schema: object) -> tuple[Field, ...]:
        return fields_of(struct_of(schema))

    def processor(self, processor: object, output: object, time_mode: TimeMode, *, pandas: bool) -> ProcessorCode:
        return processor_code(processor, output, time_mode, timezone_of(self._spark), pandas=pandas)

    def initial_state(self, grouped: object, keys: Sequence[Field], title: str) -> Callable[[], object]:
        return initial_of(grouped, keys, title)

    def group_state(
        self, function: object, output: object, state: object, timeout: str, *, watermarked: bool
    ) -> tuple[ProcessorCode, TimeMode]:
        code = group_state_code(function, output, state, timeout, timezone_of(self._spark), watermarked=watermarked)
        return code, TIMEOUTS[timeout]

    def table_fields(self, table: LookupTable) -> tuple[Field, ...]:
        if table.schema is not None:
            return self.fields(table.schema)
        try:
            return fields_of(self._spark.read.parquet(str(table.options["path"])).schema)
        except PySparkException as error:
            raise AnalysisError(f"{table.shown} cannot be read: {str(error).splitlines()[0]}") from error

    def enriched(
        self, source: object, table: object, on: Sequence[object], how: str
    ) -> tuple[object, tuple[Field, ...]]:
        if not isinstance(source, Transformed):
            source = enriched(frame_of(source), table, on, how)
        else:
            source = then(source, lambda frame: enriched(frame, table, on, how))
        return source, fields_of(frame_of(source).schema)

    def transformed(
        self, source: object, function: Callable[..., object], time: str | None, label: str
    ) -> tuple[object, tuple[Field, ...], str | None]:
        made = transformed(source, function, label)
        name = None if time is None else kept_time(frame_of(source), frame_of(made), time)
        return made, fields_of(frame_of(made).schema), name

    def projected(
        self,
        source: object,
        schema: Sequence[Field],
        time: str | None,
        groups: Sequence[object],
        aggregates: Sequence[object],
        *,
        whole: bool,
    ) -> Projected:
        asked = Asked(source, schema, time, groups, aggregates)
        return Projection(self._spark, asked, self.ansi).made(whole=whole)

    def with_columns(
        self, source: object, schema: Sequence[Field], columns: Sequence[object], call: str, *, beside: bool
    ) -> tuple[object, tuple[Field, ...], tuple[Named, ...]]:
        return with_columns(self._spark, source, schema, columns, call, beside=beside)

    def hop(self, relation: Relation, function: Callable[..., object], label: str, *others: Relation) -> SparkHop:
        return hop_over(self._spark, (relation, *others), function, label)

    def rows(self, source: object) -> object:
        return frame_of(source)

    def explain(self, relation: Relation, output_mode: OutputMode, options: Options) -> str:
        plan = replace(plan_relation(relation, output_mode, options), policy=_policy(self._spark))
        text = explain(_with_commit(plan, _read_once(plan)))
        points = HintPlan.of(plan).candidates
        return "\n".join([text, *lookahead_lines({name: Lookahead(found) for name, found in points.items()})])

    def start(self, query: QueryDefinition) -> StreamingQuery:
        replace_stream_manager()
        budget = RetryBudget(query.options.recovery_timeout / 1e6)
        return StreamingQuery(self._run(query, budget), lambda: self._run(query, budget), budget)

    def _run(self, query: QueryDefinition, budget: RetryBudget) -> Running:
        spark = self._spark
        locations = _Locations(_absolute(query.checkpoint_location), _absolute(query.state_location))
        logs = SparkLogFiles(spark, locations.checkpoint)
        plan, once = _plan(query, logs, _policy(spark))
        _check_session(spark)
        sink = sink_of(query, spark)
        late_sink = None if query.late is None else late_sink_of(query.late, spark)
        if late_sink is not None:
            late_schema(_late_rows(plan))  # refuses names before anything is disturbed
        # A store's request that hangs is noticed after the same time as a server that hangs.
        store_options = {"stall_s": f"{plan.options.heartbeat_timeout / 1e6:g}"}
        run, failure = new_run_id(), Failure()
        with ExitStack() as undo:
            controller = _take_query(undo, locations, store_options, plan, logs, run, reread=not once)
            if controller.recovery_point.epoch == NO_EPOCH:
                plan = with_initial_states(plan)
            sinks = [sink] if late_sink is None else [sink, late_sink]
            sink_run = SinkRun(
                run,
                controller.retain,
                controller.store,
                controller.check_newest,
                controller.query_id,
                controller.fence,
                controller.recovery_point.released,
            )
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
            fleet = Fleet(spark, config, plan.shards, plan.options.heartbeat_timeout / 1e6)
            undo.callback(lambda: fleet.close(keep=failure.comes_again))
            fleet.open(controller.recovery_point.manifest, budget)
            replayed = _replayed_config(controller)
            plan = _as_replayed(plan, replayed)
            recorded = {**controller.recovery_point.manifest.epoch_config, **replayed}
            plan = replace(plan, policy=recorded_policy(recorded, plan.policy))
            hints = HintPlan.of(plan)
            splits = InputSplits(spark, _shuffled(plan, replayed, len(fleet.servers), spark), replayed.get("splits"))
            undo.callback(splits.release)
            late = None
            if late_sink is not None:
                late = LateOutput(late_sink, LatePlace(config.store_uri, config.store_options), run, _late_rows(plan))
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
            started = _start_spark_query(query, receipts, locations.checkpoint, run_epoch)
            # Tasks that send to a silent server on another machine would wait for it: the epoch begins anew.
            group = str(started.runId)
            fleet.has_jobs = lambda: _has_jobs(spark.sparkContext, group)
            fleet.cancel_jobs = lambda: spark.sparkContext.cancelJobGroup(group)
            text, release = explain(plan, query), undo.pop_all().close
            return Running(started, runner, text, failure, release, controller.check_newest)


@dataclass(frozen=True)
class _Locations:
    checkpoint: str
    state: str


def _plan(query: QueryDefinition, logs: SparkLogFiles, policy: WatermarkPolicy) -> tuple[PhysicalPlan, tuple[str, ...]]:
    """The plan, with the commit mode that the sources and the checkpoint's file system allow.

    Also gives why the sources may not give an epoch twice, where they may not.
    """
    plan = replace(plan_query(query), policy=policy)
    once = _read_once(plan)
    fixed = () if plan.options.commit is CommitMode.SYNC else logs.fixed
    return _with_commit(plan, (*once, *fixed)), once


def _read_once(plan: PhysicalPlan) -> tuple[str, ...]:
    """Why some of the query's sources may not give an epoch twice."""
    return tuple(dict.fromkeys(why for stage in plan.stages if stage.ingests for why in read_once(source_rows(stage))))


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


def _receipts(plan: PhysicalPlan, hints: HintPlan, access: Access, shuffled: int, late: LatePlace | None) -> DataFrame:
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
        )
        return made

    return reduce(DataFrame.union, [of(stage) for stage in plan.stages if stage.ingests])


def _take_query(
    undo: ExitStack,
    locations: _Locations,
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


def _refuse_wrong_clock(plan: PhysicalPlan, newest: Manifest) -> None:
    if any(stage.operator.ends_by_clock for stage in plan.stages):
        refuse_clock_jump(EpochTimes.from_json(newest.epoch_config).now, plan.options.max_clock_jump)


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


def _start_spark_query(
    query: QueryDefinition, receipts: DataFrame, checkpoint: str, run_epoch: Callable[[DataFrame, int], None]
) -> SparkQuery:
    writer = DataStreamWriter(receipts).foreachBatch(run_epoch).option("checkpointLocation", _for_spark(checkpoint))
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


def _has_jobs(context: SparkContext, group: str) -> bool:
    tracker = context.statusTracker()
    return not set(tracker.getActiveJobsIds()).isdisjoint(tracker.getJobIdsForGroup(group))


def _with_commit(plan: PhysicalPlan, once: tuple[str, ...]) -> PhysicalPlan:
    """The plan with a commit that its sources allow. The asynchronous ones may need an epoch again from its source."""
    if plan.options.commit is CommitMode.SYNC or not once:
        return plan
    options = replace(plan.options, commit=CommitMode.SYNC)
    return replace(plan, options=options, commit_reason=f"since {'; '.join(once)}")


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


def _policy(spark: SparkSession) -> WatermarkPolicy:
    """What the session says now. A query keeps what it has begun with, as in Spark."""
    return WatermarkPolicy(str(spark.conf.get(_POLICY_CONF, WatermarkPolicy.MIN.value)).lower())


def _for_spark(location: str) -> str:
    """With its scheme: Spark would look for a bare path on its default file system, which may be another.

    Not as a URI: Spark decodes nothing, and would take "%20" for part of a folder's name.
    """
    return f"file:{open_store(location).uri}" if is_local(location) else location


def _absolute(location: str) -> str:
    if not is_local(location) or location.lower().startswith("file:"):
        return location
    return os.path.abspath(os.path.expanduser(location))


def _check_session(spark: SparkSession) -> None:
    """What is wrong with a session is said before the start disturbs a query that runs.

    A restart may have to replay the epoch before the newest: Spark must still know its offsets.
    """
    refuse_dynamic_allocation(spark)
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise AnalysisError(
            "PYSPARK_PIN_THREAD is false, so that Spark may run an epoch's job with what was set for another: unset it"
        )
    kept = int(spark.conf.get(_RETAIN_CONF, "100") or 100)
    if kept < 2:
        raise AnalysisError(
            f"{_RETAIN_CONF} is {kept}, and a restart needs at least 2 epochs of Spark's own log: raise it"
        )


def _refuse_differences(stored: object, now: object) -> None:
    found = differences(stored, now)  # type: ignore[arg-type]
    if found:
        raise CheckpointError(
            "The state was made by another query, and this one cannot go on with it. What differs: "
            + "; ".join(found)
            + ". Undo the change, or start with a new checkpointLocation (and stateLocation)."
        )
