"""A folder of events: whole files in reading order, in either format, and a manifest that describes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
import pytest

from tailrace.errors import TailraceError
from tailrace.lab.workloads.nexmark.events.config import Config
from tailrace.lab.workloads.nexmark.events.files import MANIFEST, Format, Written, read_manifest, write_files
from tailrace.lab.workloads.nexmark.events.generator import events
from tailrace.lab.workloads.nexmark.events.schema import EVENT_SCHEMA

CONFIG = Config(seed=9, out_of_order_group_size=7)


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    options = pj.ParseOptions(explicit_schema=EVENT_SCHEMA, unexpected_field_behavior="error")
    return pj.read_json(path, parse_options=options).select(EVENT_SCHEMA.names)


@pytest.mark.parametrize("format", list(Format))
def test_the_files_hold_the_events(tmp_path: Path, format: Format) -> None:
    written: list[Written] = []
    manifest = write_files(CONFIG, tmp_path / "feed", 2_500, 1_000, format=format, progress=written.append)
    assert written == list(manifest.files)
    assert [(file.start, file.stop) for file in written] == [(0, 1_000), (1_000, 2_000), (2_000, 2_500)]
    assert manifest.events == 2_500
    paths = [tmp_path / "feed" / file.name for file in written]
    assert sorted(entry.name for entry in (tmp_path / "feed").iterdir()) == sorted([MANIFEST, *(p.name for p in paths)])
    complete = pa.concat_tables([read(path) for path in paths])
    assert complete.combine_chunks().equals(events(CONFIG, 0, 2_500).combine_chunks())
    changed_ms = [path.stat().st_mtime_ns // 1_000_000 for path in paths]
    assert changed_ms == sorted(set(changed_ms)), "Spark reads them in this order"
    for file, path in zip(written, paths):
        table = read(path)
        kinds = table["event_type"].to_pylist()
        assert (file.persons, file.auctions, file.bids) == tuple(kinds.count(kind) for kind in range(3))
        times = table["dateTime"].cast(pa.int64()).to_pylist()
        assert (file.first_time_ms, file.last_time_ms) == (min(times), max(times))
        assert file.size_bytes == path.stat().st_size
    assert read_manifest(tmp_path / "feed") == manifest


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    manifest = write_files(CONFIG, tmp_path, 1_000, 1_000, columns=["bid_auction", "bid_price"])
    table = pq.read_table(tmp_path / manifest.files[0].name)
    assert table.column_names == ["number", "event_type", "dateTime", "bid_auction", "bid_price"]
    assert manifest.columns == tuple(table.column_names)


def test_a_full_folder_and_an_unfinished_one_are_refused(tmp_path: Path) -> None:
    write_files(CONFIG, tmp_path, 100, 100)
    with pytest.raises(TailraceError, match="not empty"):
        write_files(CONFIG, tmp_path, 100, 100)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(TailraceError, match="not all written"):
        read_manifest(tmp_path)
