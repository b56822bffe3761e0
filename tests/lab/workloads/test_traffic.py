"""Linear Road and Cluster Monitoring without Spark: traffic as it was asked for, and answers computed a second way."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab import catalog
from tailrace.lab.registry import Settings
from tailrace.lab.run import Epoch, RunOptions, run_workload
from tailrace.lab.workloads.cluster_monitoring.tasks import CPU_UNIT, SCHEDULE
from tailrace.lab.workloads.cluster_monitoring.workloads import CM1, CM2, TASKS
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.linear_road.reports import REPORT_S, SEGMENT_FEET
from tailrace.lab.workloads.linear_road.workloads import LR2, LR4, REPORTS
from tailrace.lab.workloads.traffic import records as traffic
from tailrace.lab.workloads.traffic.records import RECORD_BYTES, START_S, VALUE, Layout
from tailrace.lab.workloads.traffic.workload import CLOSES_BY, Family, StreamQuery, answer, workload

catalog.load()
Record = dict[str, int]


def values_of(query: StreamQuery, **given: int) -> dict[str, Any]:
    return {**workload(query).values(), **given}


def stream(family: Family, seconds: int, seed: int = 3, **given: int) -> list[list[Record]]:
    """The records of each second, read back from their texts without any of the lab's readers."""
    values = {"rate": 200, "deviation": 10, "delay_s": 0, "highways": 2, "jobs": 60, **given}
    tables = islice(traffic.seconds(family.source(values, seed), family.layout, values, seed), seconds)
    return [[read(text, family) for text in table[VALUE].to_pylist()] for table in tables]


def read(text: str, family: Family) -> Record:
    assert len(text.encode()) == RECORD_BYTES
    at, record = 0, {}
    for name, width in family.layout.widths.items():
        record[name] = int(text[at : at + width])
        at += width
    assert not text[at:].strip()
    return record


@pytest.mark.parametrize("family", [REPORTS, TASKS])
def test_the_traffic_is_drawn_around_its_rate_and_the_same_for_a_seed(family: Family) -> None:
    records = stream(family, 60)
    counts = [len(second) for second in records]
    assert 190 < np.mean(counts) < 210 and 12 < np.std(counts) < 30
    assert all(one["t"] == START_S + at for at, second in enumerate(records) for one in second)
    assert records == stream(family, 60)
    assert records != stream(family, 60, seed=4)
    assert {len(second) for second in stream(family, 5, deviation=0)} == {200}


def test_vehicles_report_every_thirty_seconds_on_their_way() -> None:
    reports_of: dict[int, list[Record]] = defaultdict(list)
    for second in stream(REPORTS, 200):
        for one in second:
            reports_of[one["vehicle"]].append(one)
    assert {one["highway"] for one in chain(*reports_of.values())} == {0, 1}
    assert any(len(reports) > 5 for reports in reports_of.values())
    for reports in reports_of.values():
        assert len({(one["highway"], one["direction"]) for one in reports}) == 1
        for one, after in pairwise(reports):
            assert after["t"] - one["t"] == REPORT_S
            assert one["lane"] != 4, "a vehicle that has left reports again"
            feet = after["position"] - one["position"] if one["direction"] == 0 else one["position"] - after["position"]
            assert 0 <= feet <= 100 * SEGMENT_FEET * REPORT_S // 3_600
        assert all(0 <= one["position"] < 100 * SEGMENT_FEET and one["speed"] <= 100 for one in reports)


def test_a_few_jobs_have_most_of_the_tasks() -> None:
    jobs = Counter(one["job"] for second in stream(TASKS, 60, jobs=240) for one in second)
    shares = [share for _, share in jobs.most_common()]
    assert 0.6 < sum(shares[:5]) / sum(shares) < 0.75 and len(jobs) > 150


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 99_999)), min_size=1, max_size=20))
def test_records_are_as_wide_as_they_are_said_to_be(rows: list[tuple[int, int]]) -> None:
    layout = Layout({"a": 3, "b": 5})
    made = layout.texts({name: np.array(column) for name, column in zip("ab", zip(*rows))})
    assert made.to_pylist() == [f"{a:03d}{b:05d}".ljust(RECORD_BYTES) for a, b in rows]


def test_batches_are_whole_seconds_and_end_where_asked() -> None:
    values = values_of(LR4, rate=100)
    made = list(workload(LR4).inputs(Settings(1_000, 300, 5, values)))
    tables = [batch["records"] for batch in made]
    assert sum(table.num_rows for table in tables) == 1_000
    complete = pa.concat_tables(tables)[VALUE].to_pylist()
    singles = [one["records"] for one in workload(LR4).inputs(Settings(1_000, 100, 5, values))]
    assert complete == pa.concat_tables(singles)[VALUE].to_pylist()
    times = [{text[:10] for text in table[VALUE].to_pylist()} for table in tables]
    assert all(len(each) == 3 for each in times[:-1])
    assert not any(a & b for a, b in pairwise(times))


def expected(query: StreamQuery, records: list[Record]) -> list[tuple[Any, ...]]:
    """The whole answer, record by record."""
    if query is LR2:
        by_vehicle: dict[int, list[Record]] = defaultdict(list)
        for one in records:
            by_vehicle[one["vehicle"]].append(one)
        return [
            (one["t"], one["vehicle"], one["position"] // SEGMENT_FEET, other["t"])
            for reports in by_vehicle.values()
            for one in reports
            for other in reports
            if one["t"] - 30 < other["t"] <= one["t"]
        ]
    length, slide, keys = {
        "lr4": (20, 5, ("highway", "direction", "segment")),
        "cm1": (60, 10, ("category",)),
        "cm2": (30, 1, ("job",)),
    }[query.name]
    found: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for one in records:
        if query is CM2 and one["type"] != SCHEDULE:
            continue
        record = {**one, "segment": one.get("position", 0) // SEGMENT_FEET}
        start = one["t"] // slide * slide
        while start > one["t"] - length:
            found[(start + length, *(record[key] for key in keys))].append(one.get("cpu", 0))
            start -= slide
    of = {
        "lr4": len,
        "cm1": lambda cpus: sum(cpus) * CPU_UNIT,
        "cm2": lambda cpus: sum(cpus) * CPU_UNIT / len(cpus),
    }[query.name]
    return [(*key, of(cpus)) for key, cpus in found.items()]


COLUMNS = {
    "lr2": ("ts", "vehicle", "segment", "seen"),
    "lr4": (CLOSES_BY, "highway", "direction", "segment", "reports"),
    "cm1": (CLOSES_BY, "category", "totalCpu"),
    "cm2": (CLOSES_BY, "job", "avgCpu"),
}


@pytest.mark.parametrize("query", [LR2, LR4, CM1, CM2], ids=lambda query: query.name)
def test_the_oracle_says_what_counting_by_hand_says(query: StreamQuery, tmp_path: Path) -> None:
    values = values_of(query, rate=40)
    files, tables = [], workload(query).inputs(Settings(4_000, 120, 9, values))
    for number, batch in enumerate(tables):
        files.append(write_batch(batch["records"], tmp_path, f"{number:06d}", 1))
    family = query.family
    seconds = islice(traffic.seconds(family.source(values, 9), family.layout, values, 9), 200)
    texts = [text for table in seconds for text in table[VALUE].to_pylist()][:4_000]
    records = [read(text, family) for text in texts]
    complete = expected(query, records)
    for lag in (0, 1):
        newest = max(one["t"] for one in records if lag == 0 or one["t"] < records[-1]["t"] // 3 * 3)
        closed = [row for row in complete if not query.windowed or row[0] <= newest]
        rows = answer(query, files, values, lag)
        found = list(zip(*(rows[name].to_pylist() for name in COLUMNS[query.name]), strict=True))
        assert sorted(found) == sorted(closed)
        assert found


class Quiet:
    def stage(self, what: str, done: int, steps: int) -> None:
        pass

    def epoch(self, epoch: Epoch, done: int, steps: int) -> None:
        pass


@pytest.mark.long
@pytest.mark.parametrize("engine", ["tailrace", "spark-rocksdb"])
@pytest.mark.parametrize("query", [LR2, LR4, CM1, CM2], ids=lambda query: query.name)
def test_both_engines_give_the_oracles_answer(query: StreamQuery, engine: str, tmp_path: Path) -> None:
    options = RunOptions(query.name, engine, 6_000, 300, 11, values=values_of(query, rate=50))
    outcome = run_workload(options, tmp_path, Quiet())
    assert outcome.summary["answers_equal"] is True and outcome.summary["rows_checked"] > 10
    if query is CM1:
        for epoch in (tmp_path / "rows").glob("epoch=*"):
            files = sorted(epoch.glob("*.parquet"))
            sums = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)["totalCpu"].to_pylist()
            assert sums == sorted(sums)
