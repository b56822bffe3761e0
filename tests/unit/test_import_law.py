"""A breach of any kind of the import law is caught. `make check` looks at the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.scripts import load_script

law = load_script("import_law")


def breaches(tmp_path: Path, name: str, code: str) -> list[str]:
    """What the law says of a package that holds one module with this code, beside the modules it may name."""
    for neighbour in (
        "__init__",
        "errors",
        "env/clock",
        "state/hash_table/table",
        "server/transport/client",
        "server/process/flight_service",
        "env/files/disk",
        "commit/log",
        "operators/dedup/kind",
        "operators/dedup/spec",
        "operators/top_n/kind",
        "operators/top_n/spec",
        "state/segments/segment",
        name,
    ):
        path = tmp_path / "tailrace" / f"{neighbour}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code if neighbour == name else "")
    return [violation.what for violation in law.check(tmp_path)]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (
            "operators/made/operator",
            "from tailrace.operators.dedup.spec import DeduplicateSpec",
            "tailrace.operators.made.operator may not import tailrace.operators.dedup.spec",
        ),
        (
            "operators/aggregate/made",
            "from tailrace.operators.top_n.spec import TopNSpec",
            "tailrace.operators.aggregate.made may not import tailrace.operators.top_n.spec",
        ),
        (
            "operators/session/made",
            "from tailrace.state.segments.segment import Segment",
            "tailrace.operators.session.made may not import tailrace.state.segments.segment",
        ),
        (
            "operators/rows/made",
            "from tailrace.operators.dedup.spec import DeduplicateSpec",
            "tailrace.operators.rows.made may not import tailrace.operators.dedup.spec",
        ),
        (
            "state/segments/made",
            "from tailrace.commit import log",
            "tailrace.state.segments.made may not import tailrace.commit.log",
        ),
        (
            "state/segments/made",
            "import tailrace.commit.log",
            "tailrace.state.segments.made may not import tailrace.commit.log",
        ),
        (
            "spark/query/made",
            "def f(frame):\n    return frame._jdf",
            "only spark/private.py and spark/expressions/catalyst.py and lab",
        ),
        ("lab/made", "jvm = SparkContext._jvm", "._jvm is private to PySpark"),
        ("spark/query/made", "from pyspark.sql import _thing", "pyspark.sql._thing is private to PySpark"),
        (
            "spark/query/made",
            "from py4j.protocol import Py4JError",
            "only spark/private.py, spark/expressions/catalyst.py may import py4j",
        ),
        ("spark/tasks/made", "import tailrace.spark.query", "tailrace.spark.tasks.made may not import"),
        (
            "plan/stores",
            "from tailrace.server.transport.client import StateClient",
            "may not import tailrace.server.transport.client",
        ),
        (
            "spark/driver",
            "from tailrace.server.process import flight_service",
            "may not import tailrace.server.process.flight_service",
        ),
        (
            "lab/bench",
            "from tailrace.state.hash_table.table import Table",
            "may not import tailrace.state.hash_table.table",
        ),
        ("ids", "from tailrace.errors import TailraceError", "tailrace.ids may not import tailrace.errors"),
        (
            "server/transport/client",
            "from tailrace.state.hash_table.table import Table",
            "may not import tailrace.state.hash_table.table",
        ),
        (
            "env/clock",
            "from tailrace.env.files import disk",
            "tailrace.env.clock may not import tailrace.env.files.disk",
        ),
        ("env/elsewhere", "from tailrace.env import clock", "tailrace.env.elsewhere has no place in the import law"),
        ("api/streams", "import pyspark.sql", "may import pyspark"),
        ("operators/frame", "import pyarrow.flight as flight", "may import pyarrow.flight"),
        ("operators/frame", "from pyarrow import flight", "may import pyarrow.flight"),
        ("state/segments/made", "def f():\n    import json", "import inside a function"),
        ("cli", "def f():\n    import json", "import inside a function"),
        ("state/segments/made", "def f():\n    from tailrace.commit import log", "may not import tailrace.commit.log"),
        ("state/segments/made", "from . import table", "relative import"),
        ("state/segments/made", "import time", "may import time"),
        ("state/segments/made", "from random import random", "may import random"),
        ("state/segments/made", "from os import replace", "os.replace belongs to env/"),
        ("state/segments/made", "import os\nos.replace('a', 'b')", "os.replace belongs to env/"),
        ("state/segments/made", "def f(p):\n    return open(p)", "open() opens a file"),
        ("state/segments/made", "def f(p):\n    return p.read_bytes()", ".read_bytes() touches the disk"),
        ("state/segments/made", "import datetime\ndatetime.datetime.now()", "reads the clock"),
        ("state/segments/made", "import numpy as np\nnp.random.default_rng()", "is randomness"),
        ("unheard/of", "import tailrace.errors\nfrom tailrace.env import clock", "has no place in the import law"),
    ],
)
def test_a_breach_is_caught(tmp_path: Path, name: str, code: str, message: str) -> None:
    found = breaches(tmp_path, name, code)
    assert any(message in what for what in found), found


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (
            "state/segments/made",
            "from tailrace.env import clock\nfrom tailrace.state.hash_table import table\n"
            "from tailrace.errors import X",
        ),
        ("env/disk", "import os, time, random, tempfile\nopen('x')\nos.replace('a', 'b')"),
        ("lab/bench", "import time\nimport pyspark\nimport tailrace as tr\nfrom tailrace.errors import TailraceError"),
        ("server/process", "from tailrace.server.process import flight_service as service\nimport pyarrow.flight"),
        ("spark/driver", "from tailrace.server.transport.client import StateClient\nimport os\nos.getpid()"),
        ("cli", "def f():\n    import json  # lazy: quick start of --help"),
        ("__init__", "def f():\n    import tailrace.spark  # lazy: servers need no Spark"),
    ],
)
def test_what_is_lawful_passes(tmp_path: Path, name: str, code: str) -> None:
    assert breaches(tmp_path, name, code) == []


def test_the_script_exits_with_1_and_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    breaches(tmp_path, "state/segments/made", "\nimport time\n")
    assert law.main([str(tmp_path)]) == 1
    assert "made.py:2: only env/" in capsys.readouterr().out
