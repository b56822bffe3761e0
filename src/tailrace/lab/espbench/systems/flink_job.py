"""Flink as a system under test: ``python -m tailrace.lab.espbench.systems.flink_job``, with Flink's own Python.

A cluster in this process's JVM with one task slot, since each topic has one partition. Results go to Kafka by
transactions, which end with a checkpoint; a run that was killed goes on from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from tailrace.errors import TailraceError
from tailrace.lab.espbench.queries import by_flink
from tailrace.lab.espbench.systems.job import JARS, Job, Parent

CHECKPOINTS_MS = 1_000
READY_S = 120
_LOOK_S = 0.1


def main() -> int:
    parent = Parent()
    job = parent.job()
    return parent.serve(lambda: _run(job, parent))


def _run(job: Job, parent: Parent) -> str | None:
    since = time.time()
    client = _started(job)
    end = client.get_job_execution_result()
    _wait_until_it_runs(job, end, since)
    parent.say_ready()
    why = parent.wait(lambda: _why(end))
    if why is None:
        client.cancel().result()
    return why


def _started(job: Job) -> Any:
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(_configuration(job)).build()
    )
    for number, topic in enumerate(job.inputs):
        tables.execute_sql(by_flink.source(number, job.bootstrap, topic, job.query.base == "q1"))
    if job.query.to_topic:
        tables.execute_sql(by_flink.sink(job.bootstrap, job.output))
    else:
        tables.execute_sql(f"CREATE TABLE {by_flink.OUTPUT} (updated INT) WITH ('connector' = 'blackhole')")
    if job.query.base == "q4":
        place = urlsplit(job.database)
        url = f"jdbc:postgresql://{place.hostname}:{place.port or 5432}{place.path}"
        max_age = job.settings.get("max_age_s") or 0
        age = f"{max_age:g} s" if max_age else ""
        tables.execute_sql(by_flink.workplaces(url, place.username or "", place.password or "", age))
    select = by_flink.query(tables, job.query.base, job.database, job.settings, job.inputs)
    return tables.execute_sql(f"INSERT INTO {by_flink.OUTPUT} {select}").get_job_client()


def _configuration(job: Job) -> Configuration:
    given = {
        "pipeline.jars": ";".join(Path(jar).as_uri() for jar in json.loads(os.environ[JARS])),
        "parallelism.default": "1",
        "pipeline.object-reuse": "true",
        "pipeline.auto-watermark-interval": "20 ms",  # 200 by default, which every window of query 1 would wait for
        "table.local-time-zone": "UTC",
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": f"{CHECKPOINTS_MS} ms",
        "execution.checkpointing.dir": _checkpoints(job).as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.memory.managed.size": "256m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        # A second by default, which each record would wait for.
        "python.fn-execution.bundle.time": "20",
        "python.fn-execution.bundle.size": "5000",
        "python.fn-execution.arrow.batch.size": "5000",
    }
    if (newest := _newest_checkpoint(job)) is not None:
        given["execution.state-recovery.path"] = newest.as_uri()
    configuration = Configuration()
    for name, value in given.items():
        configuration.set_string(name, value)
    return configuration


def _checkpoints(job: Job) -> Path:
    return Path(job.work).resolve() / "checkpoint"


def _newest_checkpoint(job: Job) -> Path | None:
    """One that is whole, which its metadata says."""
    whole = sorted(_checkpoints(job).glob("*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    return whole[-1].parent if whole else None


def _wait_until_it_runs(job: Job, end: Any, since: float) -> None:
    """A checkpoint says that all tasks run, and functions are open."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        newest = _newest_checkpoint(job)
        if newest is not None and (newest / "_metadata").stat().st_mtime >= since:
            return
        if (why := _why(end)) is not None:
            raise TailraceError(why)
        time.sleep(_LOOK_S)
    raise TailraceError(f"the query made no checkpoint within {READY_S} s")


def _why(end: Any) -> str | None:
    """Why it no longer runs. The cluster ends with its only job, and can be asked for nothing then."""
    if not end.done():
        return None
    try:
        end.result()
    except Exception as error:
        return f"the query ended: {error}"
    return "the query ended by itself"


if __name__ == "__main__":
    sys.exit(main())
