"""The last bid of each bidder and auction, and the highest of each auction: on several seeds, in and out of order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.lab.nexmark_run import run
from support.lab.same_rows import same_rows
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import write_files
from tailrace.lab.workloads.nexmark.oracle import answer
from tailrace.lab.workloads.nexmark.params import Params
from tailrace.lab.workloads.nexmark.queries.registry import TAILRACE
from tailrace.lab.workloads.nexmark.queries.version import Version

EVENTS, EVENTS_A_FILE = 4_000, 1_000


@pytest.mark.long
@pytest.mark.parametrize("group", [1, 500])
@pytest.mark.parametrize("query", ["q18", "q19"])
@pytest.mark.parametrize("number", range(3))
def test_the_answer_on_other_seeds(spark: SparkSession, tmp_path: Path, query: str, group: int, number: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    # Few people and auctions, so that lists are full and rows replace others.
    config = Config(
        seed=seed,
        first_event_rate=1_000,
        next_event_rate=1_000,
        num_in_flight_auctions=10,
        num_active_people=10,
        out_of_order_group_size=group,
    )
    write_files(config, tmp_path / "feed", EVENTS, EVENTS_A_FILE)
    params = Params(watermark_delay_ms=group, top=random.choice([1, 10]))
    version = TAILRACE[query]
    assert isinstance(version, Version)
    run_result = run(spark, version, tmp_path / "feed", tmp_path / "checkpoint", params)
    same_rows(run_result.rows, answer(query, tmp_path / "feed", params))
