"""The lab's names: found, or not found with help; sizes and parameters as people write them; inputs and oracles."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab import catalog, registry
from tailrace.lab.registry import Engine, Parameter, ParameterError, Settings, UnknownNameError, Workload
from tailrace.lab.workloads import bids_window
from tailrace.lab.workloads.events import write_batch

catalog.load()


def test_names_near_and_far() -> None:
    assert registry.workload("bids-window").name == "bids-window"
    with pytest.raises(UnknownNameError, match=r"no workload is called 'bid-windows', did you mean bids-window\?"):
        registry.workload("bid-windows")
    with pytest.raises(UnknownNameError, match=r"no engine is called 'Spark-RocksDB', did you mean spark-rocksdb"):
        registry.engine("Spark-RocksDB")
    with pytest.raises(UnknownNameError, match=r"no workload is called '#'; there are: .*bids-window.*keyed-sums"):
        registry.workload("#")
    with pytest.raises(UnknownNameError, match="bids-window cannot run on shuffle-floor; it can on tailrace"):
        registry.query(registry.workload("bids-window"), "shuffle-floor")
    odd = replace(registry.workload("bids-window"), cannot={"shuffle-floor": "it keeps no state"})
    with pytest.raises(UnknownNameError, match="cannot run on shuffle-floor: it keeps no state; it can on"):
        registry.query(odd, "shuffle-floor")


def test_every_workload_is_complete() -> None:
    assert {"tailrace", "spark-rocksdb", "spark-memory"} <= {engine.name for engine in registry.engines()}
    for workload in registry.workloads():
        assert workload.description and workload.feeds
        assert {"tailrace", "spark-rocksdb", "spark-memory"} <= {*workload.queries, *workload.cannot}
        for name in workload.queries:
            registry.engine(name)


def test_a_name_has_one_meaning() -> None:
    with pytest.raises(ValueError, match="two entries of the lab are called 'tailrace'"):
        registry.register(Engine("tailrace", "another"))
    with pytest.raises(ValueError, match="'Has Spaces' is no name"):
        registry.register(Engine("Has Spaces", ""))


def test_numbers_in_names_are_ordered_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = registry.workload("keyed-sums")
    named = {name: replace(plain, name=name) for name in ("q10", "q2", "a", "q2-session")}
    monkeypatch.setattr(registry, "_workloads", named)
    assert [workload.name for workload in registry.workloads()] == ["a", "q2", "q2-session", "q10"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("500k", 500_000), ("10M", 10**7), ("1.5m", 1_500_000), ("2_000", 2_000), (" 3B ", 3 * 10**9), ("0", 0)],
)
def test_sizes(text: str, number: int) -> None:
    assert registry.size(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5", "1.0005k", "-1", "1e6", "10 M", "ten", "1kk", "0x10", "١"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ParameterError, match=r"500k or 10M"):
        registry.size(text)


@given(st.integers(0, 10**15))
def test_any_whole_number_is_a_size(number: int) -> None:
    assert registry.size(str(number)) == registry.size(f"{number:_}") == number
    assert registry.size(f"{number}k") == number * 1_000
    assert registry.size(f"{number // 1000}.{number % 1000:03d}k") == number


def test_no_events_at_all_are_too_few() -> None:
    with pytest.raises(ParameterError, match="at least 1"):
        registry.count("0k")


PARAMETERS = {
    "keys": Parameter(1_000, "keys"),
    "share": Parameter(0.5, "share"),
    "hot": Parameter(True, "hot"),
    "key": Parameter("a", "key"),
}
WORKLOAD = replace(registry.workload("keyed-sums"), parameters=PARAMETERS)


def test_parameters_take_the_type_of_their_default() -> None:
    assert WORKLOAD.values() == {"keys": 1_000, "share": 0.5, "hot": True, "key": "a"}
    found = WORKLOAD.values(["keys=2M", "share=0.25", "hot=False", "key=b=c"])
    assert found == {"keys": 2_000_000, "share": 0.25, "hot": False, "key": "b=c"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("keys", "'keys' is not of the form name=value"),
        ("kyes=1", "no parameter 'kyes', did you mean keys"),
        ("keys=many", "parameter 'keys' wants a value such as 1000, not 'many'"),
        ("hot=perhaps", "parameter 'hot' wants true or false"),
    ],
)
def test_wrong_parameters(given: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        WORKLOAD.values([given])


def files_of(workload: Workload, settings: Settings, folder: Path) -> dict[str, list[Path]]:
    files = defaultdict(list)
    for number, batch in enumerate(workload.inputs(settings)):
        for feed, table in batch.items():
            files[feed].append(write_batch(table, folder / feed, f"{number:06d}", 1))
    return files


@pytest.mark.parametrize("name", ["bids-window", "keyed-sums"])
def test_inputs_are_as_many_as_asked_and_the_same_again(name: str) -> None:
    workload = registry.workload(name)
    settings = Settings(events=1_050, rows=100, seed=3, values=workload.values())
    batches = [sum(table.num_rows for table in batch.values()) for batch in workload.inputs(settings)]
    assert batches == [100] * 10 + [50]
    again = workload.inputs(settings)
    assert all(a == b for a, b in zip(workload.inputs(settings), again, strict=True))


def test_the_oracle_of_windows_is_what_plain_python_computes(tmp_path: Path) -> None:
    workload = registry.workload("bids-window")
    settings = Settings(events=1_300, rows=100, seed=5, values={"auctions": 7})
    files = files_of(workload, settings, tmp_path)
    second, late, newest = 1_000_000, 0, 0
    windows: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    # Many more late rows than the lab's share of them: an hour behind, in the last files.
    for path in files["bids"][-5:]:
        table = pq.read_table(path)
        at = table["ts"].cast(pa.int64()).to_numpy().copy()
        at[::10] -= 3_600 * second
        if path == files["bids"][-1]:  # the watermark falls on a window's end, which closes it
            at[-1] = (at.max() // (2 * second) + 1) * 2 * second
        write_batch(table.set_column(3, "ts", pa.array(at, pa.timestamp("us", tz="UTC"))), path.parent, path.stem, 1)
    for path in files["bids"]:
        for row in pq.read_table(path).to_pylist():
            at = round(row["ts"].timestamp() * second)
            if at < newest - 3_000 * second:
                late += 1
                continue
            newest = max(newest, at)
            for start in range(at // (2 * second) * 2 * second, at - 10 * second, -2 * second):
                windows[start, start + 10 * second, row["auction"]].append(row["price"])
    expected = {
        (start, end, auction, len(prices), max(prices))
        for (start, end, auction), prices in windows.items()
        if end <= newest - 10 * second
    }
    assert workload.oracle is not None
    found = workload.oracle(files, settings)
    assert late >= 50 and expected
    assert {tuple(row.values()) for row in found.to_pylist()} == expected
    assert found.num_rows == len(expected)


def test_flat_rows_read_what_spark_writes() -> None:
    edges = pa.array([(1_000_000_000, 11_000_000_000)], pa.struct([("start", pa.int64()), ("end", pa.int64())]))
    window = edges.cast(pa.struct([("start", pa.timestamp("ns")), ("end", pa.timestamp("ns"))]))
    rows = pa.table({"window": window, "auction": [1], "bids": [2], "top": [3], "epoch": [0]})
    expected = [{"start": 1_000_000, "end": 11_000_000, "auction": 1, "bids": 2, "top": 3}]
    assert bids_window.flat(rows).to_pylist() == expected


def test_the_last_word_on_a_key_counts() -> None:
    rows = pa.table(
        {"key": [1, 2, 1, 1], "total": [9, 5, 7, 8], "n": [3, 1, 1, 2], "top": [4, 5, 4, 4], "epoch": [10, 2, 0, 9]}
    )
    answer = registry.workload("keyed-sums").final(rows).sort_by("key")
    assert answer.to_pylist() == [
        {"key": 1, "total": 9, "n": 3, "top": 4},
        {"key": 2, "total": 5, "n": 1, "top": 5},
    ]


def test_the_command_lists_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", "workloads"], capture_output=True, text=True, timeout=60, check=True
    )
    for workload in registry.workloads():
        assert workload.name in done.stdout
    assert "--set auctions=20000" in done.stdout
