"""Every program of ``examples/`` runs to its end and prints what it is there to show.

They run in this process, where ``SparkSession.builder.getOrCreate()`` gives them the session that all tests share.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))

PRINTED = {
    "port": ["12:00:00  APP: 2 bids, top 60", "12:00:00  WEB: 2 bids, top 100"],
    "windows": ["12:00:00 to 12:00:10  auction 1: 3 bids, best 30", "12:00:10 to 12:00:20  auction 2: 1 bids, best 70"],
    "sessions": ["ada: 3 pages from 12:00:00 to 12:00:50", "ada: 1 pages from 12:05:00 to 12:05:30"],
    "deduplicate": ["epoch 0: order 1, order 2", "epoch 1: order 3", "epoch 2: order 1, order 4"],
    "top_n": ["auction 1: 1. ann 90, 2. bob 70", "auction 2: 1. cem 40"],
    "join": ["ad 1: clicked after 20 s", "ad 2: not clicked", "ad 3: clicked after 5 s"],
    "lookup": ["sport: 3 views", "music: 1 views"],
    "process": ["alarm: pump is silent since 12:00:05"],
    "processor": ["alarm: pump is silent since 12:00:05"],
    "late_rows": ["12:00:00 to 12:00:10: 2 rows", "late: sensor b at 12:00:01"],
    "count_windows": ["pump 0: mean 2.0", "pump 1: mean 5.0"],
    "user_aggregate": ["acme: 23.75", "zeta: 5.00"],
    "chained": ["12:00:00: auction 1 with 3 bids"],
}


def test_there_are_examples_and_all_are_known() -> None:
    assert len(PROGRAMS) >= 9
    assert {program.stem for program in PROGRAMS} == set(PRINTED)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_example_prints_its_result(program: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(program), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in PRINTED[program.stem] if line not in printed] == []
