"""ESPBench's data against what the paper and the original's files say of it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from tailrace.cli.app import app
from tailrace.errors import TailraceError
from tailrace.lab.espbench.data import sensors
from tailrace.lab.espbench.data.business import Business
from tailrace.lab.espbench.data.production_times import production_times

SAMPLES = os.environ.get("TAILRACE_SAMPLES")


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("espbench")
    options = ["--scale", "1", "--out", str(folder), "--seed", "7", "--now", "2020-02-02T20:20:20"]
    result = CliRunner().invoke(app, ["espbench", "generate", *options])
    assert result.exit_code == 0, result.output
    return folder


def test_tables_have_the_rows_keys_and_values_of_the_paper(generated: Path) -> None:
    orders = rows_of(generated / "order.csv")
    lines = rows_of(generated / "order_line.csv")
    customers = rows_of(generated / "customer.csv")
    assert (len(customers), len(orders), len(rows_of(generated / "item.csv"))) == (30_000, 30_000, 100_000)
    wanted = {str(n + 10_000 * d + 1_000_000) for d in range(1, 11) for n in range(1, 3_001)}
    assert {row[0] for row in customers} == {row[0] for row in orders} == {row[1] for row in orders} == wanted
    assert not (generated / "history.csv").exists()
    counts = {order[0]: int(order[4]) for order in orders}
    assert set(counts.values()) == set(range(5, 16))
    found: dict[str, list[int]] = {}
    for line in lines:
        found.setdefault(line[0], []).append(int(line[1]))
    assert found == {order: list(range(1, count + 1)) for order, count in counts.items()}
    assert abs(len(lines) - 300_000) < 3_000
    for line in lines[:: len(lines) // 997]:  # the first 2,100 orders of a district are delivered
        delivered = int(line[0]) % 10_000 <= 2_100
        assert line[4] == ("2020-02-02 20:20:20" if delivered else "\\N")
        assert (float(line[6]) > 0) == delivered
    assert all(len(row) == 19 and 300 <= len(row[18]) <= 500 and row[12] == "50000.00" for row in customers)
    items = [row[4] for row in rows_of(generated / "item.csv")]
    assert 9_000 < sum("original" in text for text in items) < 11_000
    production = rows_of(generated / "production_order_line.csv")
    assert [(row[0], row[1], row[3]) for row in production] == [(row[0], row[1], row[2]) for row in lines]
    assert {row[5] for row in production} == {str(n) for n in range(11)}
    assert all(row[2] == "1" and row[6:] == ["\\N", "\\N"] for row in production)


def test_machine_2_is_always_in_its_downtime_and_machine_1_never(generated: Path) -> None:
    places = {row[0]: row[2:] for row in rows_of(generated / "workplace.csv")}
    assert len(places) == 11
    assert places["1"] == ["2020-02-02 20:20:20"] * 2
    assert places["2"] == ["2020-01-10 16:47:00", "2020-02-25 23:53:40"]


def test_every_line_begins_before_it_ends_and_the_original_names_line_1(generated: Path) -> None:
    counts = np.array([5, 7])
    mended = production_times(np.array([11, 12]), counts).to_pydict()
    rows = list(zip(mended["pt_o_id"], mended["pt_ol_number"], mended["pt_is_end"], strict=True))
    assert rows[:4] == [(11, 1, 1), (11, 1, 0), (11, 2, 1), (11, 2, 0)]
    assert rows == [(o, k, flag) for o, n in ((11, 5), (12, 7)) for k in range(1, n + 1) for flag in (1, 0)]
    original = production_times(np.array([11]), counts[:1], as_original=True).to_pydict()
    ends = [k for k, flag in zip(original["pt_ol_number"], original["pt_is_end"], strict=True) if flag == 0]
    assert ends == [1, 1, 1, 1, 5]
    written = csv.read_csv(
        generated / "production_times.csv",
        csv.ReadOptions(autogenerate_column_names=True),
        csv.ParseOptions(delimiter="\t"),
    )
    assert written.num_rows == 2 * len(rows_of(generated / "order_line.csv"))


def test_as_original_keeps_its_slips() -> None:
    tables = dict(Business(1, seed=3, as_original=True).tables())
    assert tables["order"]["O_CARRIER_ID"].null_count == 30_000
    assert max(tables["order"]["O_C_ID"].to_pylist()) == 3_000
    assert tables["history"].num_rows == 30_000


def test_one_seed_makes_one_set_of_files_and_another_seed_another() -> None:
    first, again, other = (dict(Business(1, seed=seed).tables()) for seed in (5, 5, 6))
    assert all(first[name].equals(again[name]) for name in first)
    assert not first["customer"].equals(other["customer"])
    assert sensors.synthetic_rows(5, 1_000).equals(sensors.synthetic_rows(5, 1_000))


@pytest.mark.parametrize("seed", [0, 1, 20])
def test_synthetic_sensors_have_the_published_shares_and_the_real_ones_shape(seed: int) -> None:
    rows = sensors.synthetic_rows(seed).to_pylist()
    assert {len(row) for row in rows} == {181}
    columns = np.array([[int(value) for value in row.split("\t")[2:8]] for row in rows])
    mf01, mf02, mf03 = columns[:, 0], columns[:, 1], columns[:, 2]
    assert (mf01 > 14_963).sum() == 126
    assert (mf03 < 8_105).sum() == 2_640
    bursts = np.diff((mf01 > 14_963).astype(int)).clip(0).sum()
    assert 3 <= bursts <= 30
    assert np.corrcoef(mf01, mf02)[0, 1] > 0.98
    assert mf01.min() > 12_000 and mf01.max() <= 18_300 and 12_950 < np.median(mf01) < 13_150
    steps = np.abs(np.diff(mf01))
    assert np.median(steps) <= 12
    assert [int(row.split("\t")[1]) for row in rows[:2]] == [2_556_001, 2_556_002]


def test_real_files_are_read_as_published(tmp_path: Path) -> None:
    raw = tmp_path / "debs.txt"
    rows = sensors.synthetic_rows(1, 1_600).to_pylist()
    raw.write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    assert sensors.real_rows(raw, skip=100).to_pylist() == rows[100:1_600]
    assert sensors.of_workplace(sensors.real_rows(raw, 500), 2).to_pylist() == [f"{row}\t2" for row in rows[:500]]
    raw.write_text("a\tb\n" * 500)
    with pytest.raises(TailraceError, match="line 1: 2 columns, not 56"):
        sensors.real_rows(raw)
    with pytest.raises(TailraceError, match="0 rows behind the first 600"):
        sensors.real_rows(raw, skip=600)


@pytest.mark.skipif(SAMPLES is None, reason="TAILRACE_SAMPLES names no folder with real samples")
def test_the_synthetic_rows_look_as_the_real_ones() -> None:
    real = sensors.real_rows(Path(str(SAMPLES)) / "debs2012_sample.txt").to_pylist()
    assert len(real) == 17_000
    made = sensors.synthetic_rows(0, 17_000).to_pylist()
    assert {len(row) for row in real} == {len(row) for row in made} == {181}
