"""More than one executor: a state server on each, rows routed to the owner, right answers, nothing left behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from support.processes import TESTS, Sandbox

BOTH = ["rolling", "windowed"]
CHILD = TESTS / "cluster" / "child_cluster.py"


@pytest.fixture
def work_folder() -> Iterator[None]:
    """``local-cluster`` writes into Spark's own folder whatever its settings are: remove what was not there before."""
    folder = Path(pyspark.__file__).parent / "work"
    before = set(folder.iterdir()) if folder.exists() else set()
    yield
    for path in set(folder.iterdir()) - before if folder.exists() else ():
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.long  # the quick profile has two executors on a host in test_network_faults
@pytest.mark.timeout(420)
@pytest.mark.parametrize("route", ["direct", "shuffle"])
def test_two_executors_on_one_host(work_folder: None, route: str) -> None:
    with Sandbox() as sandbox:
        config = {
            "root": str(sandbox.root),
            "kind": "local-cluster",
            "questions": BOTH,
            "runs": 2,
            "options": {"route": route},
        }
        child = sandbox.start(CHILD, config)
        assert child.wait(360) == 0, sandbox.log_tail(80)
        assert sandbox.gone_within(10) == []
        assert sandbox.leftovers() == []


@pytest.mark.long
@pytest.mark.timeout(420)
def test_two_hosts_and_speculative_copies_of_tasks() -> None:
    with Sandbox() as sandbox:
        child = sandbox.start(CHILD, {"root": str(sandbox.root), "kind": "standalone", "questions": BOTH, "runs": 2})
        assert child.wait(360) == 0, sandbox.log_tail(80)
        assert sandbox.gone_within(10) == []
        assert sandbox.leftovers() == []
