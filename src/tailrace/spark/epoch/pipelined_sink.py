"""Runs the servers' steps of an epoch while Spark plans the sink's job, or already runs it.

The tasks of a pipelined sink wait in the servers for the rows. Where the servers' steps fail, these rows never come: so
the job is cancelled, and the error of the steps is the one that is raised.

Threads: the steps run in a thread of their own, since Spark's properties (the job's group, its session) belong to the
thread of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark import SparkContext

from tailrace.env import clock, tasks

_CANCEL_AGAIN_S = 0.2
_Answer = TypeVar("_Answer")


def run_pipelined_sink(
    context: SparkContext, tag: str, steps: Callable[[], _Answer], spark_work: Callable[[], None]
) -> tuple[_Answer, float]:
    """Run both at the same time. Gives the result of ``steps``, and when (monotonic) it was there.

    ``tag``: of the Spark jobs of ``spark_work``.
    """
    worked = tasks.event()

    def run() -> tuple[_Answer, float]:
        try:
            return steps(), clock.monotonic()
        except BaseException:
            while not worked.is_set():
                context.cancelJobsWithTag(tag)  # again and again, as the job may not have started yet
                worked.wait(_CANCEL_AGAIN_S)
            raise

    context.addJobTag(tag)
    worker = tasks.worker("tailrace-steps")
    running = worker.submit(run)
    failed: Exception | None = None
    try:
        spark_work()
    except Exception as error:
        failed = error
    finally:
        worked.set()
        worker.shutdown(wait=True)
        context.removeJobTag(tag)
    answer = running.result()
    if failed is not None:
        raise failed
    return answer
