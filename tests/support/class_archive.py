"""An archive of the classes that Spark loads, from which the JVMs of the tests start in half the processor time.

``python tests/support/class_archive.py FILE`` makes it: a session runs a query as the tests do, and its JVM writes the
classes it has loaded when it ends. A JVM that the archive does not fit, because Java or Spark is another by now, starts
without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test's JVM does not live long enough to earn back what the optimising compiler costs: half of its time."""
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark adds them to the command of every JVM that a Python starts, and says nothing."""


def use_archive() -> None:
    """For all JVMs that this process and its children start from here on."""
    os.environ[SUBMIT_OPTIONS] = jvm_options()


def jvm_options() -> str:
    """The same for JVMs that no Python starts: executors, and Spark's daemons."""
    archived = f" -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    return QUICK_JVM + (archived if ARCHIVE.exists() else "")


def make_archive(target: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.queries.simple import WINDOWED, Scripted, batches
    from support.session import GENERATED, session_builder

    backup = target.with_suffix(".new")
    os.environ[SUBMIT_OPTIONS] = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={backup} -Xlog:disable"
    spark = session_builder("local[2]", GENERATED).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        query = Scripted(spark, Path(folder), WINDOWED)
        query.feed(batches(3))
        query.run()
        query.check()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its input, and writes the archive then
    gateway.proc.wait(300)
    backup.rename(target)


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]))
