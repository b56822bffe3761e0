"""What every test may use: one Spark session for the whole run, and the profile of the property-based tests.

One session, because starting a JVM costs as much as ten tests. Tests that must kill a driver, or that need another
master, run a script of their own in a child process (``support.processes``) and never touch this one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

pytest.register_assert_rewrite("support")  # shared by the folders of tests; pyproject.toml puts it on the path

from support.class_archive import use_archive  # noqa: E402
from support.draw import DRAW, drawn  # noqa: E402
from support.processes import MARK  # noqa: E402
from support.servers.hdfs_cluster import HdfsCluster  # noqa: E402
from support.session import session_builder, use_defaults  # noqa: E402
from tailrace.lab.servers.kafka import KafkaBroker  # noqa: E402
from tailrace.lab.servers.postgres import PostgresServer  # noqa: E402
from tailrace.lab.servers.s3 import S3Server  # noqa: E402
from tailrace.lab.servers.shaping_proxy import ShapingProxy  # noqa: E402

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
use_archive()
use_defaults()
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every server and worker would compile our sources once more

# A failing example costs seconds of Spark, so shrinking it costs minutes: only the long profile does.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if LONG else [])]
EXAMPLES = 400 if LONG else 50
"""Of each property whose test does not say otherwise."""
settings.register_profile(
    "tailrace",
    print_blob=True,
    derandomize=False,
    deadline=None,
    max_examples=EXAMPLES,
    phases=_PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tailrace")


KINDS = ("unit", "behaviour", "simulation", "spark", "crash", "cluster", "lab", "examples", "docs")
"""Markers by folder: ``pytest -m "unit or spark"`` runs the tests below ``tests/unit`` and ``tests/spark``."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        assert folder in KINDS, f"{item.path} is in none of the folders {', '.join(KINDS)} of tests"
        item.add_marker(folder)
    if not LONG:
        leave_out(config, items)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with the marker ``drawn(n)``, all cases but n: others with each run, and all in the long profile."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("drawn") and not item.get_closest_marker("long"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for place, several in cases.items():
        (count,) = several[0].get_closest_marker("drawn").args  # type: ignore[union-attr]
        assert count < len(several), f"{place} has {len(several)} cases: drawn({count}) says nothing"
        left_out.update(set(several) - set(drawn(several, place, count)))
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_report_header() -> str:
    profile = "long" if LONG else "quick"
    return f"tailrace profile: {profile} (TAILRACE_TEST_LONG=1 for the long one); TAILRACE_TEST_DRAW={DRAW}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The shared session: two cores, tasks retried up to four times."""
    local = tempfile.mkdtemp(prefix="tr-session-")
    os.environ["SPARK_LOCAL_DIRS"] = local  # known, so that a test can lose a shuffle
    os.environ[MARK] = uuid.uuid4().hex  # everything the session starts carries it: see support.processes
    session = session_builder("local[2,4]", {"spark.sql.warehouse.dir": f"{local}/warehouse"}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()
    shutil.rmtree(local, ignore_errors=True)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name: a Unix socket's path ends at 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="tr-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server with an empty bucket. Tests choose names of their own in it."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def proxy(s3: S3Server) -> Iterator[ShapingProxy]:
    """A way to it that tests may make bad, and make good again."""
    with ShapingProxy(s3.port) as way:
        yield way


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real database. Tests make tables of their own in it."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A real broker. Tests make topics of their own in it."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def hdfs() -> Iterator[HdfsCluster]:
    """A real name node and data node. Takes some seconds to start: for tests of the long profile."""
    with HdfsCluster() as cluster:
        yield cluster
