"""The validator: right answers by hand-written rules, and each kind of wrong result seen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tailrace.lab.espbench.data import sensors
from tailrace.lab.espbench.names import QUERIES
from tailrace.lab.espbench.validator.answers import Answers, MachinePower, answers, machine_power
from tailrace.lab.espbench.validator.compare import Results, exactly_once, pairs
from tailrace.lab.espbench.validator.downtimes import Downtime, Downtimes

START_MS = 1_700_000_000_400


def topic(rows: list[str], spacing_ms: int = 10, start_ms: int = START_MS) -> pa.Table:
    times = start_ms + spacing_ms * np.arange(len(rows))
    values = [f"{number};{time - 3};{row}".encode() for number, (time, row) in enumerate(zip(times, rows, strict=True))]
    return pa.table({"offset": np.arange(len(rows)), "time_ms": times, "value": pa.array(values, pa.binary())})


def sensor(mf01: int, mf02: int = 14_000, mf03: int = 9_000, workplace: int = 1) -> str:
    return "\t".join(["t", "1", str(mf01), str(mf02), str(mf03), *["0"] * 51, str(workplace)])


def test_statistics_of_each_second_but_the_last() -> None:
    found = answers(QUERIES["q1"], {1: topic([sensor(number) for number in range(1, 171)])})
    assert found.texts == [f"{sum(range(1, 61)) / 60:.4f},1,60,60", f"{sum(range(61, 161)) / 100:.4f},61,160,100"]
    assert found.caused_ms == [START_MS + 600, START_MS + 1_600]


def test_outliers_of_each_whole_window() -> None:
    rows = [f"{row}\t1" for row in sensors.synthetic_rows(5, 1_300).to_pylist()]
    found = answers(QUERIES["q2"], {1: topic(rows)})
    assert found.ids is not None and 20 < len(found) < 140 and max(found.ids) < 1_000
    assert found.ids == sorted(found.ids)
    for number, text in zip(found.ids, found.texts, strict=True):
        row, _, probability = text.rpartition("\t")
        assert row == rows[number] and 0.5 <= float(probability) <= 1
    assert set(found.caused_ms) == {START_MS + 4_990, START_MS + 9_990}


def test_thresholds_are_strict() -> None:
    rows = [sensor(14_963), sensor(14_964), sensor(1), sensor(20_000)]
    found = answers(QUERIES["q3"], {1: topic(rows)})
    assert (found.ids, found.texts) == ([1, 3], [rows[1], rows[3]])
    assert found.caused_ms == [START_MS + 10, START_MS + 30]


def test_machine_power_outside_of_downtimes_whose_bounds_are_outside() -> None:
    downtimes = Downtimes({1: [Downtime(START_MS, START_MS + 20)], 2: [Downtime(0, 2**50)]})
    rows = [sensor(1, mf03=8_104), sensor(1, mf03=8_104), sensor(1, mf03=8_104), sensor(1, mf03=8_105)]
    second = [sensor(1, mf03=7_000, workplace=2)] * 3
    found = machine_power({1: topic(rows), 2: topic(second)}, downtimes, {})
    assert found.answers.ids == [0, 2] and found.undecided == 0


@pytest.mark.parametrize(("max_age_ms", "either"), [(0, [10, 11]), (30, [10, 11, 12, 13, 14])])
def test_where_a_downtime_changes_both_answers_are_right_for_as_long_as_a_copy_may_live(
    max_age_ms: int, either: list[int]
) -> None:
    """Records every 10 ms, results 5 ms later; workplace 1 goes down between records 10 and 11."""
    asked_ms, done_ms = START_MS + 104, START_MS + 110
    known = [Downtime(0, 0), Downtime(0, 2**50, asked_ms, done_ms)]
    inputs = {1: topic([sensor(1, mf03=1)] * 20)}

    def judged_with(reported: list[int]) -> MachinePower:
        results = {number: START_MS + 10 * number + 5.0 for number in reported}
        return machine_power(inputs, Downtimes({1: known}, max_age_ms), results)

    assert judged_with(list(range(10))).answers.ids == list(range(10))
    latest = judged_with(list(range(max(either) + 1)))
    assert latest.answers.ids == list(range(max(either) + 1)) and latest.undecided == len(either)
    assert latest.stale_max_ms == max(either) * 10 - 110
    assert judged_with(list(range(20))).answers.ids == list(range(max(either) + 1))  # the rest is wrong
    assert judged_with(list(range(5))).answers.ids == list(range(10))  # before, all are due


def of(texts: list[str], ids: list[int] | None = None) -> tuple[Answers, Results]:
    times = [1_000 * number for number in range(len(texts))]
    return Answers(texts, ids, times), Results(list(texts), ids and list(ids), [time + 7 for time in times])


def test_right_results_have_their_latencies() -> None:
    for right, results in (of(["a", "b"], [4, 9]), of(["1.5,1,2,2", "1.5,1,2,2"])):
        found = pairs(right, results)
        assert found.correct and found.correctness == 100 and found.latencies_ms == [7, 7]
        verdict = exactly_once(right, results)
        assert verdict.exactly_once and verdict.out_of_order == 0 and verdict.latencies_ms == {0: 7, 1: 7}


def test_a_result_that_no_reader_had_counts_as_no_time_of_a_reader() -> None:
    right = Answers(["a", "b"], [0, 1], [1_000, 1_000])
    results = Results(["a", "b"], [0, 1], [1_005, 1_006], [1_200.0, float("nan")])
    assert exactly_once(right, results).seen_ms == {0: 200.0}


def test_averages_may_have_other_digits_and_no_other_value() -> None:
    right = Answers(["1.3333,1,2,3", "2.0000,1,2,3"], None, [0, 0])
    near = Results(["1.33333333,1,2,3", "2.0,1,2,3"], None, [1, 1])
    assert pairs(right, near).correct and exactly_once(right, near).exactly_once
    for wrong in ("1.34,1,2,3", "1.3333,1,2,4", "x,1,2,3"):
        other = Results([wrong, "2.0,1,2,3"], None, [1, 1])
        assert pairs(right, other).errors == 1
        verdict = exactly_once(right, other)
        assert (verdict.missing, verdict.unexpected, verdict.exactly_once) == (1, 1, False)


@pytest.mark.parametrize(
    ("ids", "missing", "doubled", "behind", "unexpected"),
    [
        ([0, 1, 2, 3], 0, 0, 0, 0),
        ([0, 1, 3], 1, 0, 0, 0),
        ([0, 1, 1, 2, 3, 3], 0, 2, 0, 0),
        ([1, 0, 2, 3], 0, 0, 1, 0),
        ([0, 1, 2, 3, 8], 0, 0, 0, 1),
        ([], 4, 0, 0, 0),
    ],
)
def test_each_record_has_a_verdict(ids: list[int], missing: int, doubled: int, behind: int, unexpected: int) -> None:
    right = Answers([f"row {number}" for number in range(4)], [0, 1, 2, 3], [0] * 4)
    results = Results([f"row {number}" for number in ids], ids, [5] * len(ids))
    found = exactly_once(right, results)
    assert (found.missing, found.doubled, found.out_of_order, found.unexpected) == (
        missing,
        doubled,
        behind,
        unexpected,
    )
    assert found.exactly_once == (not (missing or doubled or unexpected))
    assert pairs(right, results).correct == (ids == [0, 1, 2, 3])


def test_a_wrong_text_is_wrong_in_both() -> None:
    right = Answers(["a", "b"], [0, 1], [0, 0])
    results = Results(["a", "c"], [0, 1], [1, 1])
    assert (pairs(right, results).errors, exactly_once(right, results).wrong) == (1, 1)
    assert pairs(right, results).correctness == 50


def test_the_originals_percentage_and_where_it_gives_up() -> None:
    right = Answers([str(number) for number in range(1_000)], None, [0] * 1_000)
    found = pairs(right, Results(right.texts[:500], None, [0] * 500))
    assert (found.too_few, found.expected, found.actual, found.correctness) == (100, 600, 500, 83.33)
    more = pairs(right, Results([*right.texts, "x", "y"], None, [0] * 1_002))
    assert (more.too_many, more.correctness) == (2, 99.8)


def test_results_are_taken_apart_at_their_semicolons() -> None:
    table = pa.table({"time_ms": [1, 2], "value": [b"7;row", b"8;1;row"]})
    assert Results.of(table, True) == Results(["row", "row"], [7, 8], [1, 2])
    assert Results.of(pa.table({"time_ms": [1], "value": [b"1.0,1,1,1"]}), False).texts == ["1.0,1,1,1"]
