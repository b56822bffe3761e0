"""Random streaming queries give the same rows on Tailrace as on Spark. One number is one query with its rows.

The long profile runs thousands and says how far it is; ``TAILRACE_TEST_PLANS=20000`` runs more, and
``TAILRACE_TEST_PLAN=12345`` one, which a failure names.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from support.plans.comparison import DIFFERENT, SAME, compare
from support.plans.programs import draw_plan
from support.plans.tally import Tally

COUNT = int(os.environ.get("TAILRACE_TEST_PLANS", "2000"))
SEEDS = 2**32


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory, where there is such a place: two checkpoints a query are thousands of small files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tr-plans-", dir=shared if os.access(shared, os.W_OK) else None) as made:
        yield Path(made)


@settings(max_examples=4)
@given(seed=st.integers(0, SEEDS - 1))
def test_the_same_rows(spark: SparkSession, folder: Path, seed: int) -> None:
    plan = draw_plan(int(os.environ.get("TAILRACE_TEST_PLAN", seed)))
    verdict = compare(spark, plan, folder / "one")
    assert verdict.kind != DIFFERENT, f"{plan}\n{verdict.about}"


@pytest.mark.long
@pytest.mark.timeout(0)
def test_thousands(spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = random.randrange(SEEDS)
    tally = Tally(COUNT)
    with capsys.disabled():
        print(f"\nplans from {first} on", file=sys.stderr)
    for number in range(COUNT):
        plan = draw_plan((first + number) % SEEDS)
        tally.add(plan, compare(spark, plan, folder / str(number)))
        with capsys.disabled():
            tally.show()
    with capsys.disabled():
        print(f"\nnot read:\n{tally.reasons_shown()}", file=sys.stderr)
    assert not tally.failures, "\n\n".join(tally.failures)
    assert tally.kinds[SAME] > COUNT / 2
