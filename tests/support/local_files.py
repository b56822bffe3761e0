"""Hadoop's local files for the JVMs of the tests, without a process for each permission: ``LocalFiles.java``.

Compiled by the compiler that Spark brings for its own generated code, so that no JDK is needed. The class is at the end
of the class path of every JVM, where Spark's launcher looks for what an installation adds.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

from pyspark.java_gateway import launch_gateway

JAR = Path(sys.prefix) / "local-files.jar"
OPTION = "-Dspark.hadoop.fs.file.impl=tailrace.test.LocalFiles"
_SOURCE = Path(__file__).with_name("LocalFiles.java")
_CLASS_PATH = "SPARK_DIST_CLASSPATH"


def use_local_files() -> None:
    """For all JVMs that this process and its children start from here on."""
    paths = [path for path in os.environ.get(_CLASS_PATH, "").split(os.pathsep) if path]
    if str(JAR) not in paths:
        os.environ[_CLASS_PATH] = os.pathsep.join([*paths, str(JAR)])


def make_jar() -> None:
    gateway = launch_gateway()
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()  # type: ignore[union-attr]
    compiler.cook(_SOURCE.read_text())
    with zipfile.ZipFile(JAR, "w") as jar:
        for name, code in dict(compiler.getBytecodes()).items():
            jar.writestr(f"{name.replace('.', '/')}.class", bytes(code))
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its input
    gateway.proc.wait(60)
