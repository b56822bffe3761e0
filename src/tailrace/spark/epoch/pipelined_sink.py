"""The servers' steps of an epoch, and what the driver has Spark do meanwhile: plan the sink's job, or begin it.

A sink that is begun so has tasks that wait in the servers for the rows. Where the steps fail these never come, so the
job is cancelled, and what the steps failed with is what counts.

Threads: the steps run in one of their own, since Spark's properties (the job's group, its session) belong to the thread
of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark import SparkContext

from tailrace.env import clock, tasks

_LOOK_S = 0.2
_Answer = TypeVar("_Answer")


def run_pipelined_sink(
    context: SparkContext, fingerprint: str, steps: Callable[[], _Answer], spark_work: Callable[[], None]
) -> tuple[_Answer, float]:
    """Both at the same time. Gives what ``steps`` gives, and when (monotonic) it was done.

    ``tag``: of the Spark jobs of ``spark_work``.
    """
    worked = tasks.event()

    def run() -> tuple[_Answer, float]:
        try:
            return steps(), clock.monotonic()
        except BaseException:
            while not worked.is_set():
                context.cancelJobsWithTag(fingerprint)  # again, as it may not have begun yet
                worked.wait(_LOOK_S)
            raise

    context.addJobTag(fingerprint)
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
        context.removeJobTag(fingerprint)
    answer = running.result()
    if failed is not None:
        raise failed
    return answer
