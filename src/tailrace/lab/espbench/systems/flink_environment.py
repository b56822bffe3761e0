"""What Flink needs from its parent: a Python of its own, since it pins other versions than PySpark needs; connectors;
and Tailrace's modules, which it finds through a link in the run's folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tailrace.lab.espbench.systems.job import JARS
from tailrace.lab.servers.debian import by_script
from tailrace.lab.servers.maven import Artifact, fetched

VARIABLE = "FLINK_PYTHON"
_HEAP = "-Xmx1g"


def python() -> str:
    """One that has PyFlink: the environment's, else the project's script makes it."""
    if named := os.environ.get(VARIABLE):
        return named
    folder = Path(sys.prefix) / "flink"
    return by_script("flink.sh", folder, sys.executable, missing=f"install apache-flink 2.2 and name it by {VARIABLE}")


def connectors() -> list[Path]:
    """For Kafka, and for PostgreSQL. Named one by one: each has a version of its own that goes with Flink 2.2."""
    return fetched(
        "flink-connectors",
        [
            Artifact("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2", alone=True),
            Artifact("org.apache.flink", "flink-connector-jdbc-core", "4.0.0-2.0", alone=True),
            Artifact("org.apache.flink", "flink-connector-jdbc-postgres", "4.0.0-2.0", alone=True),
            Artifact("org.postgresql", "postgresql", "42.7.7", alone=True),
        ],
    )


def variables(work: Path) -> dict[str, str]:
    """The environment of the process. Its memory: a heap of 1 GB, and what ``flink_job`` gives to state."""
    package = Path(__file__).parents[3]
    link = work / "modules" / package.name
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        link.symlink_to(package)
    return {
        **os.environ,
        JARS: json.dumps([str(jar) for jar in connectors()]),
        "PYTHONPATH": str(link.parent),
        "JVM_ARGS": _HEAP,
        "FLINK_LOG_DIR": str(work),
        "NUMBA_CACHE_DIR": str(Path(sys.prefix) / "flink" / "kernels"),  # another numba may have compiled ours
        "TMPDIR": str(work),
    }
