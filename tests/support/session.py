"""How a test's Spark session is made: the recommended settings, small, and quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from support.class_archive import QUICK_JVM, SUBMIT_OPTIONS, jvm_options

FILE_MANAGERS = "org.apache.spark.sql.execution.streaming." + (
    "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
)
"""The package of Spark's checkpoint file managers, which PySpark 4.1 has moved."""

DAEMON_FOLDER = str(Path(__file__).parent / "spark_daemon")
DAEMON = "warm_daemon"

DEFAULTS = {
    # The daemon has the modules of every task imported before it forks workers.
    "spark.python.daemon.module": DAEMON,
    # Some hundred rows are read before code for them is compiled. Some tests ask for generated code.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Of every session that a test starts and that does not say otherwise: those of the lab above all."""

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
}

GENERATED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own. Some queries in child processes, and those on clusters, run generated code."""


def use_defaults() -> None:
    """For all sessions that this process and its children start from here on."""
    # Not by a folder of Spark's settings: that is on the class path, and then no archive of classes fits.
    given = os.environ.get(SUBMIT_OPTIONS, "").split()
    options = (f"-D{name}={value}" for name, value in DEFAULTS.items())
    os.environ[SUBMIT_OPTIONS] = " ".join([*given, *(each for each in options if each not in given)])
    _add_to_python_path(DAEMON_FOLDER)


def session_builder(master: str, more: Mapping[str, str] | None = None) -> SparkSession.Builder:
    # Workers must be this Python, not the first one on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    use_defaults()
    builder = SparkSession.builder.master(master).appName("tailrace-tests")
    for name, value in {**CONFS, **(more or {})}.items():
        builder = builder.config(name, value)
    return builder


def on_hosts(builder: SparkSession.Builder, host: str) -> SparkSession.Builder:
    """For a driver on ``host`` whose executors, of one core each, are on other hosts that have the same folders."""
    confs = {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": jvm_options(),
        # All executors must be there when the servers are placed: a cluster brings them one by one.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "15s",
    }
    for name, value in confs.items():
        builder = builder.config(name, value)
    for name in ("PYTHONPATH", "TMPDIR"):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    return builder


def _add_to_python_path(folder: str) -> None:
    """Of the processes that are started from here: JVMs, and their Python daemons."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, folder])
