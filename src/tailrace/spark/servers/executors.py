"""Starting state servers: at most one per executor, by a task there.

Only public PySpark is used. ``ensure_servers`` may be called by several threads: whoever comes second to an executor
finds the server of the first.

Nobody can say for sure how many executors there are, nor make Spark visit each. Tasks that stay for a moment fill one
slot after the other, and an executor that is missed has no server: rows reach the others from there all the same. A
barrier job would visit all, but it waits for as many slots as it guesses there to be, all free at once: for ever, where
the guess is too high or other queries are busy.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace import errors
from tailrace.api.options import Transport
from tailrace.env import clock, tasks
from tailrace.env.randomness import short_id
from tailrace.errors import StateServerError, TailraceError, UnansweredError
from tailrace.server.process.launch import ensure_server
from tailrace.server.transport.server_config import TCP, UNIX, ServerAddress, ServerConfig

_COLUMN = "answer"
_STAYS_S = (0.2, 1.0, 1.0)
"""How long the tasks of each wave stay: those of the first hardly, since idle executors get their tasks all at once."""

_WAVE_S = 5.0
"""After this, the tasks of a wave stay no longer, however many are left."""

_VISIT_S_MAX = 600.0
"""A wave's job that lasts longer is cancelled: no slot gets free, or an executor behind a cut link does not answer."""
_CANCEL_AGAIN_S = 1.0
_LOST_TASKS = ("ExecutorLostFailure", "SPARK_JOB_CANCELLED")
"""In Spark's account of a job that failed through no fault of its tasks: the next may do better."""

_COPY_STAY_S = 10.0
"""A later attempt of a task stays this long. It may be a speculative copy: one that is quick, because its executor has
a server already, would end the attempt that is still starting one elsewhere."""


def transport_of(spark: SparkSession, wanted: Transport) -> str:
    """Unix sockets where driver and executors share a machine by construction, TCP elsewhere, unless said otherwise."""
    if wanted is not Transport.AUTO:
        return wanted.value
    return UNIX if str(spark.sparkContext.master).startswith("local") else TCP


def ensure_servers(
    spark: SparkSession, config: ServerConfig, suspects: Collection[str] = ()
) -> tuple[ServerAddress, ...]:
    """The servers of this run on the executors that tasks reached, started where there was none, in a fixed order.

    ``suspects``: ids of servers that do not answer. Where a task meets one, it is killed and replaced.
    """
    context = spark.sparkContext
    master = str(context.master)
    visit = functools.partial(_visit, spark, config, frozenset(suspects))
    if _one_executor(master):
        found = visit(1, "localhost", 0.0)
    else:
        cpus = int(context.getConf().get("spark.task.cpus") or 1)
        found = _spread(
            lambda count, stay_s: visit(count, None, stay_s), lambda: max(1, context.defaultParallelism // cpus)
        )
    servers = sorted(found, key=lambda server: (server.host, server.executor_pid, server.server))
    if config.transport == UNIX and len({server.host for server in servers}) > 1:
        raise StateServerError(
            f"the executors are on several machines ({sorted({s.host for s in servers})}),"
            ' which Unix sockets cannot join: set the option transport="tcp"'
        )
    return tuple(servers)


def _one_executor(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _spread(visit: Callable[[int, float], set[ServerAddress]], slots: Callable[[], int]) -> set[ServerAddress]:
    """Visit in waves, until one meets nothing new.

    ``slots``: a guess, asked before every wave, since a young cluster still grows. A wrong one only costs time.
    """
    found: set[ServerAddress] = set()
    for stay_s in _STAYS_S:
        before, count = len(found), slots()
        found |= visit(count, stay_s)
        if len(found) == before or len(found) >= count:
            break
    return found


def _visit(
    spark: SparkSession, config: ServerConfig, suspects: frozenset[str], count: int, host: str | None, stay_s: float
) -> set[ServerAddress]:
    """One wave of so many tasks: what servers they met or started."""
    start = functools.partial(_start_here, config, suspects, host, stay_s, clock.now() + _WAVE_S)
    try:
        with _ending(spark.sparkContext, _VISIT_S_MAX):
            answers = spark.range(0, count, 1, count).mapInArrow(start, f"{_COLUMN} string").toArrow()
    except PySparkException as error:
        raise _job_error(error) from error
    found = [json.loads(text) for text in answers.column(_COLUMN).to_pylist()]
    for answer in found:
        if "error" in answer:
            kind: type[TailraceError] = getattr(errors, answer["error"], StateServerError)
            raise kind(answer["message"])
    return {ServerAddress(**answer) for answer in found}


@contextmanager
def _ending(context: SparkContext, timeout_s: float) -> Iterator[None]:
    """Jobs that this thread runs inside are cancelled after so long."""
    tag = f"tailrace-visit-{short_id()}"
    over = tasks.event()

    def cancel() -> None:
        wait_s = timeout_s
        while not over.wait(wait_s):
            context.cancelJobsWithTag(tag)
            wait_s = _CANCEL_AGAIN_S  # the next job of the same wave

    tasks.start("tailrace-visit", cancel)
    context.addJobTag(tag)
    try:
        yield
    finally:
        over.set()
        context.removeJobTag(tag)


def _start_here(
    config: ServerConfig,
    suspects: frozenset[str],
    host: str | None,
    stay_s: float,
    until: float,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs in a task: this executor's server, or our error in its place (Spark would wrap it, and try it again)."""
    for _ in batches:
        pass
    try:
        answer = asdict(ensure_server(config, host=host, suspects=suspects))
        task = TaskContext.get()
        if task is not None and task.attemptNumber() > 0:
            clock.sleep(_COPY_STAY_S)
        else:  # ``until`` is by the driver's clock: where this host's differs, the wave spreads less, or lasts longer
            clock.sleep(max(0.0, min(stay_s, until - clock.now())))
    except TailraceError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    yield pa.RecordBatch.from_pydict({_COLUMN: [json.dumps(answer)]})


def _job_error(error: PySparkException) -> StateServerError:
    """Why the tasks could not run, out of Spark's long account of it."""
    text = str(error)
    missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
    if missing is not None:
        return StateServerError(
            f"the executors' Python cannot import {missing[1]}, which tailrace needs there: install tailrace on every "
            "executor, or point PYSPARK_PYTHON (spark.pyspark.python) to an environment that has it"
        )
    lost = any(word in text for word in _LOST_TASKS)
    kind = UnansweredError if lost else StateServerError
    return kind(f"no state server could be started on the executors: {text[:2000]}")
