"""Run records: written whole, never over another, read back equal, and refused with words that help."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lab.records import record
from tailrace.lab.records.bench_record import end_bench
from tailrace.lab.records.record import Record, RecordError, Recording

PARAMETERS = {"rows": 10, "engine": "tailrace", "share": 0.5, "check": True}
SERIES: record.Series = {"tailrace": {"ms": [1.5, 2, None]}}


def made(at: float = 1_800_000_000.25, name: str = "rmw") -> Record:
    times = iter([at, at + 90])
    return Recording("bench", name, clock=lambda: next(times)).end(PARAMETERS, {"ratios": {}}, SERIES)


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
text = st.text(max_size=20)
records = st.builds(
    Record,
    kind=st.sampled_from(record.KINDS),
    name=st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True),
    id=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    started=st.just("2026-01-31T09:30:00.000001Z"),
    ended=st.just("2026-01-31T09:31:00.500000Z"),
    machine=st.dictionaries(text, numbers | text),
    versions=st.dictionaries(text, text),
    parameters=st.dictionaries(text, numbers | text | st.booleans() | st.none()),
    summary=st.dictionaries(text, numbers | st.dictionaries(text, numbers)),
    series=st.dictionaries(text, st.dictionaries(text, st.lists(numbers | st.none()))),
    confs=st.dictionaries(text, st.dictionaries(text, text)),
)


@given(records)
def test_what_is_written_is_read_back(short_path: Path, wrote: Record) -> None:
    path = record.write(wrote, short_path)
    assert record.read(path) == wrote


def test_a_record_says_when_and_where(tmp_path: Path) -> None:
    path = record.write(made(), tmp_path / "new" / "folder")
    assert re.fullmatch(r"20270115T080000Z-rmw-[0-9a-f]{8}\.json", path.name)
    found = json.loads(path.read_text())
    assert found["schema"] == record.SCHEMA
    assert (found["started"], found["ended"]) == ("2027-01-15T08:00:00.250000Z", "2027-01-15T08:01:30.250000Z")
    assert found["machine"]["cores"] >= 1 and "pyspark" in found["versions"]
    assert found["parameters"] == PARAMETERS and found["series"] == SERIES
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_no_record_is_ever_overwritten(tmp_path: Path) -> None:
    same = made()
    paths: list[Path] = []

    def write() -> None:
        paths.append(record.write(same, tmp_path))

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(set(paths)) == 8
    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert all(record.read(path) == same for path in paths)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match=r"No space left on device.*TAILRACE_RECORDS"):
        record.write(made(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"cannot be written to .*file.*--records"):
        record.write(made(), tmp_path / "file" / "records")


def edited(path: Path, **fields: Any) -> None:
    found = json.loads(path.read_text())
    for name, value in fields.items():
        if value is ...:
            del found[name]
        else:
            found[name] = value
    path.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schema": 2}, "schema 2; this Tailrace reads schema 1"),
        ({"schema": True}, "schema True"),
        ({"schema": ...}, "it has no field 'schema'"),
        ({"series": ...}, "it has no field 'series'"),
        ({"machine": []}, "its field 'machine' is list, not dict"),
        ({"kind": "walk"}, "its kind is 'walk', not one of bench, run"),
        ({"ended": "noon"}, "its field 'ended' is 'noon'"),
        ({"mood": "good"}, "knows no field 'mood'"),
        ({"series": {"tailrace": [1]}}, "the series of 'tailrace' are list"),
        ({"series": {"tailrace": {"ms": [1, "2"]}}}, "the series 'ms' of 'tailrace' is not a list of numbers"),
        ({"series": {"tailrace": {"ms": [True]}}}, "the series 'ms' of 'tailrace' is not a list of numbers"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = record.write(made(), tmp_path)
    edited(path, **fields)
    with pytest.raises(RecordError) as error:
        record.read(path)
    assert message in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'"schema"'])
def test_other_files_are_no_records(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=re.escape(f"{path} is not a run record")):
        record.read(path)


def test_a_cut_record_is_reported_at_every_length(tmp_path: Path) -> None:
    path = record.write(made(), tmp_path)
    complete = path.read_bytes().rstrip()
    for length in range(0, len(complete), 7):
        path.write_bytes(complete[:length])
        with pytest.raises(RecordError, match=re.escape(str(path))):
            record.read(path)


def test_all_records_oldest_first_and_what_is_left_out(tmp_path: Path) -> None:
    late, early = made(2_000_000_000), made(1_000_000_000)
    late_path = record.write(late, tmp_path)
    record.write(early, tmp_path)
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    (tmp_path / "notes.txt").write_text("not looked at")
    found, problems = record.read_all([late_path, tmp_path])
    assert found == [early, late]  # one of them was named twice
    assert len(problems) == 1 and str(bad) in problems[0]
    with pytest.raises(RecordError, match=r"bad\.json"):
        record.read_all([bad])
    with pytest.raises(RecordError, match=r"there is no .*nowhere"):
        record.read_all([tmp_path / "nowhere"])


def test_where_records_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(record.VARIABLE, raising=False)
    assert record.folder() == Path("artifacts/records")
    monkeypatch.setenv(record.VARIABLE, "/elsewhere")
    assert record.folder() == Path("/elsewhere")
    assert record.folder(Path("here")) == Path("here")


def test_a_benchs_result_becomes_a_record() -> None:
    result = {
        "bench": "rmw",
        "speedup_rocksdb": 3.0,
        "median_ms": {"tailrace": 10.0, "spark-rocksdb": 30.0},
        "spread": {"tailrace": 0.1, "spark-rocksdb": 0.2},
        "series_ms": {"tailrace": [9, 10, 11], "spark-rocksdb": [29, 30, 31]},
        "rows": 5,
        "seed": 1,
        "answers_equal": None,
        "machine": {"cores": 99},
        "versions": {},
        "confs": {"tailrace": {"spark.x": "1"}},
    }
    found = end_bench(Recording("bench", "rmw"), result)
    assert found.parameters == {"rows": 5, "seed": 1}
    assert found.summary["ratios"] == {"speedup_rocksdb": 3.0}
    assert found.summary["median_ms"] == result["median_ms"] and found.summary["answers_equal"] is None
    assert found.series == {"tailrace": {"ms": [9, 10, 11]}, "spark-rocksdb": {"ms": [29, 30, 31]}}
    assert found.confs == result["confs"]
    assert found.machine["cores"] != 99  # the record has its own, taken before the run
