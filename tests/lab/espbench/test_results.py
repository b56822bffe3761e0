"""Files of results, series that are taken up again, and what processes use."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tailrace.lab.espbench.config import Config
from tailrace.lab.espbench.results.files import ResultFolder
from tailrace.lab.espbench.results.utilisation import Sample, Utilisation
from tailrace.lab.espbench.run import series
from tailrace.lab.espbench.run.one_run import RunOptions
from tailrace.lab.espbench.run.outcome import Outcome
from tailrace.lab.espbench.run.recovery import Kill
from tailrace.lab.espbench.run.series import Failed, SeriesOptions, run_series
from tailrace.lab.espbench.run.servers import Servers
from tailrace.lab.espbench.sender.process import Sent
from tailrace.lab.espbench.sender.senders import StreamSent
from tailrace.lab.espbench.systems.process import SystemFailedError
from tailrace.lab.espbench.validator.compare import Pairs, Verdict


def outcome(
    system: str = "tailrace",
    run: int = 1,
    latencies: Sequence[int] = (10, 20, 30),
    faults: Sequence[str] = (),
    kills: Sequence[Kill] = (),
) -> Outcome:
    pairs = Pairs(expected=3, actual=3, latencies_ms=list(latencies))
    verdict = Verdict(0, 0, 0, 0, 0, dict(enumerate(latencies)))
    sent = Sent(3, 3, 0, "", 1.5, {"p50": 0.1, "p90": 0.2, "p99": 0.3, "max": 0.4}, {"batch-size-avg": 7.0})
    used = [Sample(1.0, "system", 0.5, 100, 10, 20)]
    streams = [StreamSent(1, (sent,))]
    caused = [1_000_000 + 10 * number for number in range(len(latencies))]
    seen = [each + 5.0 for each in latencies]
    of_run = (system, "q3", 1_000, run, 3, pairs, verdict, latencies, caused, seen, streams, 0.1, 0.2, used)
    return Outcome(*of_run, faults=faults, kills=kills)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_has_the_originals_files(tmp_path: Path) -> None:
    kept = ResultFolder(tmp_path)
    kept.add(outcome(latencies=list(range(100))), Config(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    (row,) = rows(tmp_path / "ESB_1_20260102030405.csv")
    assert row["Query"] == "q3" and row["Topic"] == "ESB-1-AbsoluteThreshold" and row["Correct"] == "True"
    assert float(row["RT-90%ile in ms"]) == pytest.approx(np.percentile(range(100), 90))
    assert (row["RT-Min in ms"], row["RT-Max in ms"], row["RT-Fulfilled"]) == ("0", "99", "True")
    latencies = (tmp_path / "logs/ESB-1-AbsoluteThreshold_responseTimes.csv").read_text().split()
    assert latencies == [str(n) for n in range(100)]
    (sender,) = rows(tmp_path / "ESB_1_20260102030405_sender.csv")
    assert (sender["expectedRecordNumber"], sender["record-send-rate"], sender["waiting-threads"]) == ("3", "2.0", "")
    (used,) = rows(tmp_path / "logs/ESB-1-AbsoluteThreshold_utilisation.csv")
    assert (used["process"], used["cpu"], used["written_bytes"]) == ("system", "0.5", "20")


def test_a_series_has_means_over_valid_runs(tmp_path: Path) -> None:
    kept = ResultFolder(tmp_path)
    for run, latencies in enumerate(([10, 10], [30, 30]), 1):
        kept.add(outcome(run=run, latencies=latencies), Config())
    kept.add(outcome(run=3, latencies=[9_999], faults=["late"]), Config())
    kept.add(outcome(run=4, latencies=[9_999], kills=[Kill(1_000.0, 2.0, 3.0)]), Config())
    (row,) = rows(tmp_path / "series.csv")
    assert (row["system"], row["runs"], row["p90_ms"], row["all_correct"]) == ("tailrace", "2", "20.0", "True")
    assert (kept.runs("tailrace", "q3", 1_000), kept.runs("spark", "q3", 1_000), kept.next_run(1)) == (2, 0, 5)
    assert kept.runs("tailrace", "q3", 1_000, kills=1) == 1
    assert row["seen_p90_ms"] == "25.0"


def test_a_series_is_taken_up_where_it_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, str, int, int]] = []

    def stand_in(options: RunOptions, servers: Servers, work: Path, progress: object) -> Outcome:
        made.append((options.system, options.query.key, options.config.interval_ns, options.config.benchmark_run))
        if len(made) == 3:
            raise SystemFailedError("it fell over")
        return outcome(options.system, options.config.benchmark_run)

    monkeypatch.setattr(series, "one_run", stand_in)
    config = Config(kafka_bootstrap_servers="localhost:1")
    options = SeriesOptions(["q3"], [1_000], ["tailrace", "spark"], 2, config, tmp_path)
    kept = ResultFolder(tmp_path / "results")
    found = list(run_series(options, kept, tmp_path, lambda *_: None))
    assert [(system, run) for system, _, _, run in made] == [
        ("tailrace", 1),
        ("spark", 2),
        ("tailrace", 3),
        ("spark", 4),
    ]
    assert [type(each) for each in found] == [Outcome, Outcome, Failed, Outcome]
    with (tmp_path / "results/summaries.jsonl").open("a") as file:
        file.write('{"system":"tailrace","que')  # killed in the middle of a line
    made.clear()
    list(run_series(options, kept, tmp_path, lambda *_: None))
    assert made == [("tailrace", "q3", 1_000_000, 5)]
    made.clear()
    assert list(run_series(options, kept, tmp_path, lambda *_: None)) == [] and made == []


def test_a_process_is_counted_with_its_offspring() -> None:
    busy = "import sys, time\nend = time.time() + 60\nwhile time.time() < end: pass"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    child = subprocess.Popen([sys.executable, "-c", parent, busy], start_new_session=True)
    try:
        with Utilisation(lambda: {"system": child.pid}, interval_s=0.2) as used:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and sum(sample.cpu for sample in used.samples) < 0.3:
                time.sleep(0.1)
        of_it = [sample for sample in used.samples if sample.process == "system"]
        assert sum(sample.cpu for sample in of_it) >= 0.3 and max(sample.memory_bytes for sample in of_it) > 5_000_000
        assert {sample.process for sample in used.samples} == {"system", "network"}
    finally:
        os.killpg(child.pid, 9)
        child.wait()
