"""How a test's Spark session is made: the recommended settings, small, and quiet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from support.class_archive import QUICK_JVM

FILE_MANAGERS = "org.apache.spark.sql.execution.streaming." + (
    "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
)
"""The package of Spark's checkpoint file managers, which PySpark 4.1 has moved."""

DAEMON_FOLDER = str(Path(__file__).parent / "spark_daemon")
DAEMON = "warm_daemon"

CONFS = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": f"{FILE_MANAGERS}FileSystemBasedCheckpointFileManager",
    # Spark would add an empty batch after the last to move its own watermark; then epochs would not be the script's.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A lost shuffle makes a local Spark forget its own block manager for good; larger results would go through it.
    "spark.task.maxDirectResultSize": "64m",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": DAEMON,
}


def session_builder(master: str) -> SparkSession.Builder:
    # Workers must be this Python, not the first one on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _add_to_python_path(DAEMON_FOLDER)
    builder = SparkSession.builder.master(master).appName("tailrace-tests")
    for name, value in CONFS.items():
        builder = builder.config(name, value)
    return builder


def _add_to_python_path(folder: str) -> None:
    """Of the processes that are started from here: JVMs, and their Python daemons."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, folder])
