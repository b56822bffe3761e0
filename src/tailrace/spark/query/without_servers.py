"""Starting a query without an operator: the steps of every start (``start``), its sink, and Spark's query.

A table or a topic gets its rows from the driver, in order: so the last step of the streaming plan are tasks that set
them aside. All other sinks get Spark's own batch.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import SparkSession

from tailrace.api.definition import QueryDefinition, TableSink
from tailrace.env.randomness import new_run_id
from tailrace.errors import AnalysisError
from tailrace.plan.explain import explain
from tailrace.spark.commit.spark_log import SparkLogFiles
from tailrace.spark.epoch.pass_through import PassThroughRunner
from tailrace.spark.epoch.progress import QueryIdentity
from tailrace.spark.query import start
from tailrace.spark.query.query import Failure, Running
from tailrace.spark.query.spark_progress import ReportedRunner, report_to_listeners
from tailrace.spark.servers.losses import RetryBudget
from tailrace.spark.sinks.set_aside import RowsSetAside
from tailrace.spark.sinks.sinks import sink_of
from tailrace.spark.sources.transforms import frame_of
from tailrace.spark.tasks.row_objects import RowsPlace


def start_without_servers(spark: SparkSession, query: QueryDefinition, budget: RetryBudget) -> Running:
    """One run of the query."""
    if query.late is not None:
        raise AnalysisError("lateRows: no row is late where no operator asks for its time: remove it")
    locations = start.Locations.of(query)
    logs = SparkLogFiles(spark, locations.checkpoint)
    plan, once = start.plan_started(query, logs, start.policy_of(spark))
    assert plan.passed is not None
    start.check_session(spark)
    sink, rows = sink_of(query, spark), frame_of(plan.passed.source)
    store_options = start.store_options_of(plan)
    run, failure = new_run_id(), Failure()
    with ExitStack() as undo:
        controller = start.take_query(undo, locations, store_options, plan, logs, run, reread=not once)
        place = RowsPlace(locations.state, store_options)
        undo.callback(sink.close)
        sink.open(start.sink_run_of(controller, place))
        aside = RowsSetAside(place, run) if isinstance(query.sink, TableSink) else None
        runner = PassThroughRunner(plan, controller, sink, QueryIdentity(run, query.name), budget, aside)
        undo.callback(runner.close)
        controller.trim_spark_logs()
        report_to_listeners(spark)
        batches = rows if aside is None else aside.receipts_of(rows)
        run_epoch = failure.keeping(ReportedRunner(runner))
        started = start.start_spark_query(query, batches, locations.checkpoint, run_epoch)
        text, release = explain(plan, query), undo.pop_all().close
        return Running(started, runner, text, failure, release, controller.check_newest)
