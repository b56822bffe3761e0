"""NEXMark in the lab: every query is a workload; runs and benches of it are checked, and what is wrong is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from tailrace.cli import app
from tailrace.lab import catalog, registry
from tailrace.lab.bench import measure
from tailrace.lab.bench.nexmark import rows_of, values_of
from tailrace.lab.bench.options import NexmarkOptions
from tailrace.lab.records import record
from tailrace.lab.registry import Settings, UnknownNameError
from tailrace.lab.run_check import WrongAnswerError
from tailrace.lab.workloads.events import write_batch
from tailrace.lab.workloads.nexmark.answers import ANSWERS
from tailrace.lab.workloads.nexmark.bench_check import check_further_rows
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.generator import events as make_events
from tailrace.lab.workloads.nexmark.events.schema import Kind
from tailrace.lab.workloads.nexmark.queries.registry import SPARK, TAILRACE
from tailrace.lab.workloads.nexmark.queries.version import Impossible, Version
from tailrace.lab.workloads.nexmark.workloads import FEED, PREFIX, VERSIONS, params_of, watermark_ms

catalog.load()

SETTINGS = ("rate=250", "out_of_order=20", "window_ms=3000", "slide_ms=1500", "gap_ms=900")
MORE = ("active_people=30", "auctions_in_flight=20")
SET = [word for text in (*SETTINGS, *MORE) for word in ("--set", text)]
VALUES = registry.workload("nexmark-q5").values((*SETTINGS, *MORE))


def command(tmp: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp), "COLUMNS": "100", "TAILRACE_RECORDS": str(tmp / "records")},
        cwd=tmp,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_every_query_is_a_workload() -> None:
    for query in ANSWERS:
        workload = registry.workload(PREFIX + query)
        for engine, versions in VERSIONS.items():
            entry = versions[query]
            if isinstance(entry, Version):
                assert registry.query(workload, engine)
            else:
                with pytest.raises(UnknownNameError, match=f"cannot run on {engine}: "):
                    registry.query(workload, engine)


def test_events_are_cut_into_batches() -> None:
    """Whatever the batches, they are the generator's events; a query's feed has the columns of its kinds."""
    workload = registry.workload("nexmark-q8")
    settings = Settings(events=450, rows=200, seed=3, values=VALUES)
    tables = [batch[FEED] for batch in workload.inputs(settings)]
    assert [table.num_rows for table in tables] == [200, 200, 50]
    made = pa.concat_tables(tables)
    assert "person_name" in made.column_names and "bid_price" not in made.column_names
    config = Config(
        seed=3,
        first_event_rate=250,
        next_event_rate=250,
        out_of_order_group_size=20,
        num_active_people=30,
        num_in_flight_auctions=20,
    )
    assert made == make_events(config, 0, 450, made.column_names)


@pytest.mark.parametrize("given", [(), SETTINGS, (*SETTINGS, *MORE), ("rate=250", "auctions_in_flight=20")])
def test_what_follows_from_the_parameters_is_enough(given: tuple[str, ...]) -> None:
    """No event comes later than the watermark allows, no bid longer before its auction's end than it is kept."""
    workload = registry.workload("nexmark-q9")
    values = workload.values(given)
    params = params_of(values)
    earliest = 0
    for seed in range(3):
        (batch,) = workload.inputs(Settings(events=20_000, rows=20_000, seed=seed, values=values))
        events = batch[FEED]
        times = events["dateTime"].cast(pa.int64()).to_numpy()
        behind = int((np.maximum.accumulate(times) - times).max())
        assert behind < params.watermark_delay_ms if int(values["out_of_order"]) > 1 else behind == 0
        sold, offered = (events.filter(pc.equal(events["event_type"], int(kind))) for kind in (Kind.AUCTION, Kind.BID))
        ends = dict(zip(sold["auction_id"].to_pylist(), sold["auction_expires"].cast(pa.int64()).to_pylist()))
        bids = zip(offered["bid_auction"].to_pylist(), offered["dateTime"].cast(pa.int64()).to_pylist(), strict=True)
        earliest = max(earliest, *(ends.get(auction, at) - at for auction, at in bids))
    assert params.auction_life_ms / 2 < earliest <= params.auction_life_ms


def make_files(tmp: Path, query: str, batches: int) -> list[Path]:
    settings = Settings(events=batches * 600, rows=600, seed=2, values=VALUES)
    made = registry.workload(PREFIX + query).inputs(settings)
    return [write_batch(batch[FEED], tmp / query, f"{n:06d}", 1) for n, batch in enumerate(made)]


def oracle(query: str, files: list[Path]) -> pa.Table:
    settings = Settings(events=len(files) * 600, rows=600, seed=2, values=VALUES)
    found = registry.workload(PREFIX + query).oracle_of("tailrace")
    assert found is not None
    return found({FEED: files}, settings)


def with_window(rows: pa.Table) -> pa.Table:
    """As engines say it."""
    window = pa.StructArray.from_arrays(
        [rows[f"window_{edge}"].combine_chunks() for edge in ("start", "end")], ["start", "end"]
    )
    return rows.drop_columns(["window_start", "window_end"]).append_column("window", window)


def emitted(rows: pa.Table) -> pa.Table:
    return rows.append_column("epoch", pa.array([7] * rows.num_rows, pa.int32()))


def test_further_windows_are_checked(tmp_path: Path) -> None:
    files = make_files(tmp_path, "q5", 6)
    for engine, lag in (("tailrace", 0), ("spark-rocksdb", 1)):
        marks = [watermark_ms("q5", {FEED: files[: n - lag]}, VALUES) for n in (4, 6)]
        answer = oracle("q5", files)  # once: the order of its rows may be another each time
        ends = answer["window_end"].cast(pa.int64())
        rows = answer.filter(pc.and_(pc.greater(ends, marks[0]), pc.less_equal(ends, marks[1])))
        output = emitted(with_window(rows))
        assert check_further_rows("q5", engine, output, files, 2, VALUES) == rows.num_rows > 1
        for wrong in (output.slice(1), pa.concat_tables([output, output.slice(0, 1)]), None):
            with pytest.raises(WrongAnswerError, match=f"q5 on {engine} gives a wrong answer"):
                check_further_rows("q5", engine, wrong, files, 2, VALUES)


def test_further_changes_are_checked(tmp_path: Path) -> None:
    files = make_files(tmp_path, "q18", 4)
    before, after = oracle("q18", files[:3]).to_pylist(), oracle("q18", files).to_pylist()
    changed = [row for row in after if row not in before]
    same = [row for row in after if row in before]
    schema = oracle("q18", files).schema
    assert changed and same

    def check(rows: list[dict[str, Any]]) -> int:
        output = emitted(pa.Table.from_pylist(rows, schema))
        return check_further_rows("q18", "spark-rocksdb", output, files, 1, VALUES)

    assert check(changed) == len(changed)
    assert check([*changed, same[0]]) == len(changed) + 1  # touched, though not changed
    for wrong in (changed[1:], [*changed, {**same[0], "price": 0}], [*changed[1:], {**changed[0], "extra": "?"}]):
        with pytest.raises(WrongAnswerError):
            check(wrong)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "nexmark", "--queries", "q99"), "no query 'q99'"),
        (("bench", "nexmark", "--queries", ""), "name at least one"),
        (("bench", "nexmark", "--queries", "q0"), "keeps no state"),
        (("bench", "nexmark", "--queries", "q5", "--sink", "sock"), "'sock' is not one of"),
        (("bench", "nexmark", "--queries", "q5", "--set", "rate=fast"), "wants a value such as 10000"),
        (("run", "nexmark-q0"), "keeps no state"),
        (("run", "nexmark-q4", "--engine", "spark-rocksdb"), "it can on tailrace"),
    ],
)
def test_wrong_options_exit_with_2(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


_RUNS = [
    (query, engine)
    for query in ANSWERS
    for engine, versions in VERSIONS.items()
    if engine != "spark-memory" and not isinstance(versions[query], Impossible)
]


@pytest.mark.long
@pytest.mark.parametrize(("query", "engine"), _RUNS)
def test_runs_are_checked(short_path: Path, query: str, engine: str) -> None:
    sizes = ("--events", "4000", "--rows", "1000", "--seed", "7")
    result = command(short_path, "run", PREFIX + query, "--engine", engine, *sizes, *SET)
    assert result["answers_equal"] is True and result["rows_checked"] > 0
    assert result["epochs"] == 4 and result["rate"] == 250


@pytest.mark.long
def test_the_bench_compares_query_by_query(short_path: Path) -> None:
    sizes = ("--rows", "1000", "--warmup", "1", "--turn", "2", "--turns", "2")
    engines = ("--engines", "spark-rocksdb,spark-memory,tailrace")
    result = command(short_path, "bench", "nexmark", "--queries", "q5,q12", *sizes, *engines, *SET)
    assert result["answers_equal"] is True and all(result["rows_checked"][query] > 0 for query in ("q5", "q12"))
    for ratios in ("ratios", "ratios_memory", "cpu_ratios"):
        assert set(result[ratios]) == {"q5", "q12"} and all(value > 0 for value in result[ratios].values())
    assert result["state_rows"]["q12"]["tailrace"] > 0 and result["state_rows"]["q12"]["spark-rocksdb"] is None
    (path,) = (short_path / "records").iterdir()
    kept = record.read(path)
    assert (kept.kind, kept.name, kept.summary["ratios"]) == ("bench", "nexmark", result["ratios"])
    assert {len(metrics["ms"]) for metrics in kept.series.values()} == {4}, "one batch of two a turn, two queries"


def test_windows_of_the_bench_are_as_long_as_a_turn() -> None:
    """Each turn counts one batch in which windows end, for Tailrace and, a batch later, for Spark."""
    options = NexmarkOptions()
    for query in ("q7", "q8"):
        values, rows = values_of(options, query), rows_of(options, query)
        length, batch_ms = int(values["window_ms"]), rows * 1_000 // int(values["rate"])
        assert length == values["gap_ms"] == 2 * int(values["slide_ms"]) == options.turn * batch_ms
        first_ms = int(values["first_event"]) * 1_000 // int(values["rate"])
        assert (Config().base_time_ms + first_ms) % length == 0
        for late in (0, 1):
            closing = [late + end // batch_ms for end in range(length, 40 * length, length)]
            for number in range(options.turns):
                first = options.warmup + number * options.turn
                assert len([one for one in closing if first + 1 <= one < first + options.turn]) == 1
            further = range(options.measured, options.measured + options.further)
            assert any(one in further for one in closing), "rows are there to be checked"
    options = NexmarkOptions(rows=1_000, turn=5, given=("window_ms=7", "rate=1000", "active_people=3"))
    given = values_of(options, "q7")
    assert (given["window_ms"], given["slide_ms"], given["gap_ms"], given["active_people"]) == (7, 2_500, 5_000, 3)


def test_processor_time_of_a_session_is_reported() -> None:
    busy = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 60
        while (measure.session_cpu_s(process.pid) or 0) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 0.3 <= (measure.session_cpu_s(process.pid) or 0) < 5
        process.communicate("\n")


def test_versions_of_a_query_say_the_same() -> None:
    for query in ANSWERS:
        both = [one for one in (SPARK[query], TAILRACE[query]) if isinstance(one, Version)]
        assert query in ("q8", "q9") or len({(one.mode, one.keys, one.closes_by) for one in both}) <= 1
