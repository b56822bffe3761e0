"""An archive of the classes that Spark loads, from which the JVMs of the tests start in half the processor time.

``python -m support.class_archive FILE`` makes it: a session runs queries as the tests do, with generated code and
without, and its JVM writes the classes it has loaded when it ends. A JVM that the archive does not fit, because Java,
Spark or the class path is another by now, starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from support.local_files import JAR, OPTION, make_jar, use_local_files

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test's JVM does not live long enough to earn back what the optimising compiler costs: half of its time."""
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Spark adds them to the command of every JVM that a Python starts, and says nothing."""


def use_archive() -> None:
    """For all JVMs that this process and its children start from here on."""
    os.environ[SUBMIT_OPTIONS] = jvm_options()
    if ARCHIVE.exists() and JAR.exists():  # it fits JVMs with the class path of the one that has made it
        use_local_files()
        os.environ[SUBMIT_OPTIONS] += f" {OPTION}"


def jvm_options() -> str:
    """The same for JVMs that no Python starts: executors, and Spark's daemons."""
    archived = f" -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    return QUICK_JVM + (archived if ARCHIVE.exists() else "")


def make_archive(target: Path) -> None:
    from support.queries.simple import ROLLING, WINDOWED, Scripted, batches
    from support.session import DEFAULTS, GENERATED, session_builder

    make_jar()
    use_local_files()
    backup = target.with_suffix(".new")
    os.environ[SUBMIT_OPTIONS] = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={backup} -Xlog:disable {OPTION}"
    spark = session_builder("local[2]", GENERATED).getOrCreate()
    for question, confs in ((WINDOWED, GENERATED), (ROLLING, DEFAULTS)):
        for name in GENERATED:
            spark.conf.set(name, confs[name])
        with tempfile.TemporaryDirectory() as folder:
            query = Scripted(spark, Path(folder), question)
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
