"""Spark sessions for the lab: the same confs for Tailrace and for every peer that it is compared with.

One session a process. Everything a session writes lies under the folder it is given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace.lab.bench.measure import cores

# PySpark 4.1 has moved the class to a package of its own.
_FILE_MANAGERS = "org.apache.spark.sql.execution.streaming." + (
    "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
)

RECOMMENDED = {
    # Plain files and renames instead of Hadoop's FileContext: the clearest gain per micro-batch of all confs.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_FILE_MANAGERS}FileSystemBasedCheckpointFileManager",
    "spark.python.worker.reuse": "true",
    # Over TCP, a Python task's first rows wait 40 ms for an acknowledgement that the kernel delays.
    "spark.python.unix.domain.socket.enabled": "true",
    # Any other value makes Spark ask for the size of the batch after every row, a quarter of what it spends on rows
    # for Python. Batches stay bounded by their number of rows (spark.sql.execution.arrow.maxRecordsPerBatch).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.enabled": "false",
}
"""What we recommend to users, and so what every engine in a comparison runs with."""

QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # An idle query looks for files ten times a second, not a hundred times: in an interleaved run it must not take
    # time from the engine whose turn it is. It is no part of any batch's measured time.
    "spark.sql.streaming.pollingDelay": "100ms",
}


def confs(heap: str, work: Path, extra: Mapping[str, str]) -> dict[str, str]:
    n = cores()
    return {
        **RECOMMENDED,
        **QUIET,
        "spark.master": f"local[{n}]",
        "spark.sql.shuffle.partitions": str(n),
        "spark.driver.memory": heap,
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        **extra,
    }


def check_java() -> None:
    """Spark's own message about a missing Java does not say what to do."""
    home = os.environ.get("JAVA_HOME")
    if which(os.path.join(home, "bin", "java") if home else "java") is None:
        where = (
            f"JAVA_HOME is {home}, which has no bin/java"
            if home
            else "JAVA_HOME is unset and there is no java on the path"
        )
        raise TailraceError(
            f"Spark needs Java 17 or newer, and none was found: {where}. On Debian or Ubuntu: apt install "
            f"openjdk-17-jre-headless. Where Java is already there: export JAVA_HOME=/folder/that/holds/bin"
        )


def start_session(
    name: str, *, work: Path, heap: str = "2g", extra: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """The session of this process. ``log``: the file for the JVM's standard error; without it, it shares ours."""
    check_java()
    # Spark's Python workers must be this very Python, whatever `python3` is on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in confs(heap, work, extra or {}).items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log):
            spark: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        said = f"; the end of its log:\n{_tail(log)}" if log is not None else ""
        raise TailraceError(f"Spark did not start: {error}{said}") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """The JVM, and all that it starts, inherits standard error: its noise goes to the file for as long as it lives."""
    if log is None:
        yield
        return
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
