"""Medians, percentiles and ratios as the benchmarks report them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tailrace.lab.bench import measure
from tailrace.lab.bench.comparison import in_turns, median_durations
from tailrace.lab.engines.progress import Batch


def test_medians_and_percentiles() -> None:
    assert measure.median([3, 1, 2]) == 2
    assert measure.percentile(list(range(101)), 99) == 99
    assert measure.ratio(6.0, 4.0) == 1.5
    assert measure.spread([10, 10, 10]) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_no_engine_always_follows_the_same_other_one(count: int) -> None:
    names = tuple("abcde"[:count])
    turns = [in_turns(names, number) for number in range(2 * count)]
    places = Counter((place, name) for turn in turns for place, name in enumerate(turn))
    after = Counter(pair for turn in turns for pair in pairwise(turn))
    assert set(places.values()) == {2} and len(places) == count**2
    assert set(after.values()) <= {2} and len(after) == count * (count - 1)


def test_a_part_of_the_time_that_a_batch_does_not_name_took_none() -> None:
    series = [{"own_ms": {"apply": 4}}, {"own_ms": {"apply": 6, "sink": 2}}, {"own_ms": {"apply": 5}}]
    assert median_durations(series, "own_ms") == {"apply": 5, "sink": 0}


def test_the_machine_and_versions_are_named() -> None:
    assert measure.machine()["cores"] == measure.cores() >= 1
    assert {"python", "java", "pyspark", "tailrace"} <= set(measure.versions())


def test_a_batch_takes_time_from_spark_and_state_from_tailrace() -> None:
    spark = {"batchId": 3, "numInputRows": 10, "durationMs": {"triggerExecution": 7}, "stateOperators": []}
    own = {"stateOperators": [{"numRowsTotal": 5, "numRowsDroppedByWatermark": 1}], "eventTime": {"watermark": "w"}}
    assert Batch.of(spark, own) == Batch(epoch=3, rows=10, ms=7, state_rows=5, late_rows=1, watermark="w")
