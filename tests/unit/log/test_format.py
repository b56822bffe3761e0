"""State objects: what is written is read back; no damaged byte goes unseen."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.models.commit import section
from tailrace.commit.objects import ObjectRef, open_object, read_sections, write_object
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log import format as fmt
from tailrace.log import reader as reader_module
from tailrace.log.writer import object_parts

RUN = "0123456789abcdef"


def memory() -> CloudStore:
    return CloudStore(f"memory://{short_id()}", {})


def write(store, sections, *, shards=((0, 64),), horizons=None) -> ObjectRef:
    return write_object(
        store,
        run=RUN,
        try_=0,
        server=0,
        first_epoch=3,
        last_epoch=3,
        shards=shards,
        sections=sections,
        horizons=horizons or {"op": -7},
    )


def rows(shard: int, n: int) -> pa.RecordBatch:
    return section({(f"key {shard} {each} \N{SNOWMAN}", each): each for each in range(n)})


def test_checksums_are_those_of_zlib() -> None:
    """As docs/reference/log-format.md says, so that others can check them: of an entry, and of a batch of an object."""
    entry = fmt.encode_entry("fence", {})
    covered, checksum = entry.rsplit(b',"crc32":"', 1)
    assert int(checksum[:8], 16) == zlib.crc32(covered)
    parts = [bytes(part) for part in object_parts({"horizons": {}}, [("op", 5, rows(5, 300))])]
    length, crc = fmt.footer_length(parts[-1][-fmt.OBJECT_TRAILER.size :], "here")
    footer = parts[-1][:length]
    index = fmt.parse_footer(footer, crc, "here")["operators"]["op"]
    assert index["batches"][0][2] == zlib.crc32(parts[1])


sizes = st.dictionaries(st.integers(0, 63), st.sampled_from([0, 1, 2, 300, 5000]), max_size=12)


@settings(max_examples=40)
@given(first=sizes, second=sizes)
def test_every_shard_is_read_back_as_written(first: dict[int, int], second: dict[int, int]) -> None:
    store = memory()
    sections = {
        name: {shard: rows(shard, n) for shard, n in by_shard.items()}
        for name, by_shard in (("op", first), ("another", second))
    }
    ref = write(store, sections)
    assert ref.bytes == len(store.get(ref.name))
    for name, by_shard in sections.items():
        for shard, batches, horizon in read_sections(store, [ref], name, range(64)):
            expected = by_shard.get(shard)
            read = pa.Table.from_batches(batches, schema=rows(0, 0).schema)
            assert read.equals(pa.Table.from_batches([expected] if expected else [], schema=read.schema))
            assert horizon == (-7 if name == "op" else -(2**63))


def test_a_large_section_is_split_and_read_back(monkeypatch) -> None:
    monkeypatch.setattr(fmt, "SECTION_BATCH_BYTES", 10_000)
    store = memory()
    batch = rows(5, 3000)
    ref = write(store, {"op": {4: rows(4, 1), 5: batch, 6: rows(6, 1)}})
    assert len(list(open_object(store, ref).section("op", 5))) > 5
    (_, batches, _) = next(read_sections(store, [ref], "op", [5]))
    assert batches == [batch], "whoever reads it does not see where it was cut"


def test_small_sections_share_a_batch_and_large_ones_do_not() -> None:
    store = memory()
    small = open_object(store, write(store, {"op": {shard: rows(shard, 2) for shard in range(64)}}))
    assert [len(place.rows) for place in small._places["op"]] == [64]
    large = open_object(store, write(store, {"op": {shard: rows(shard, 3000) for shard in range(3)}}))
    assert [len(place.rows) for place in large._places["op"]] == [1, 1, 1]


def test_reading_one_shard_reads_only_its_part() -> None:
    class Counting(CloudStore):
        read = 0

        def get_range(self, name, start, length):
            self.read += length
            return super().get_range(name, start, length)

    store = Counting(f"memory://{short_id()}", {})
    ref = write(store, {"op": {shard: rows(shard, 20_000) for shard in range(16)}})
    list(read_sections(store, [ref], "op", [2]))
    assert store.read < ref.bytes / 16 + reader_module.WHOLE_BYTES_MAX + 1000 < ref.bytes / 2


def damage_every_region(ref: ObjectRef, data: bytes, seed: int):
    """Names of regions, and the object with one bit of that region flipped; then cut off in each region."""
    length, _ = fmt.footer_length(data, "")
    ends = {
        "header": fmt.OBJECT_HEADER.size,
        "sections": len(data) - fmt.OBJECT_TRAILER.size - length,
        "footer": len(data) - fmt.OBJECT_TRAILER.size,
        "trailer": len(data),
    }
    rng, start = random.Random(seed), 0
    for region, end in ends.items():
        positions = range(start, end) if end - start <= 64 else sorted(rng.sample(range(start, end), 64))
        for at in positions:
            flipped = bytearray(data)
            flipped[at] ^= 1 << rng.randrange(8)
            yield f"{region} flipped at {at}", bytes(flipped)
        cut = rng.randrange(start, end)
        yield f"{region} cut at {cut}", data[:cut]
        start = end


@pytest.mark.parametrize("complete", [True, False], ids=["small", "large"])
def test_damage_anywhere_is_found_and_the_file_named(complete: bool, monkeypatch) -> None:
    if not complete:
        monkeypatch.setattr(reader_module, "WHOLE_BYTES_MAX", 1024)
    store = memory()
    ref = write(store, {"op": {shard: rows(shard, 30) for shard in range(8)}, "another": {0: rows(0, 300)}})
    data = store.get(ref.name)
    for what, bad in damage_every_region(ref, data, seed=1):
        store.put(ref.name, [bad])
        with pytest.raises(CheckpointError) as caught:
            for operator in ("op", "another"):
                list(read_sections(store, [ref], operator, range(64)))
        assert isinstance(caught.value, CorruptionError), what
        assert ref.name in str(caught.value), what
    store.delete([ref.name])
    with pytest.raises(CorruptionError, match="missing"):
        list(read_sections(store, [ref], "op", range(64)))


def test_another_version_is_refused_as_such(monkeypatch) -> None:
    store = memory()
    monkeypatch.setattr(fmt, "OBJECT_VERSION", 9)
    ref = write(store, {"op": {0: rows(0, 3)}})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format version 9; this Tailrace reads version 3") as caught:
        list(read_sections(store, [ref], "op", [0]))
    assert not isinstance(caught.value, CorruptionError)
    assert ref.name in str(caught.value)


def test_a_whole_object_under_another_name_is_refused() -> None:
    store = memory()
    ref = write(store, {"op": {0: rows(0, 3)}})
    other = replace(ref, name=ref.name.replace("0000-0.delta", "0000-1.delta"))
    store.put(other.name, [store.get(ref.name)])
    with pytest.raises(CorruptionError, match="it holds the object"):
        list(read_sections(store, [other], "op", [0]))


def test_sections_of_wrong_order_shard_or_schema_are_not_written() -> None:
    store = memory()
    with pytest.raises(ValueError, match="got a section of shard 9"):
        write(store, {"op": {9: rows(9, 1)}}, shards=((0, 8),))
    with pytest.raises(ValueError, match="comes after"):
        list(object_parts({}, [("op", 2, rows(2, 1)), ("op", 1, rows(1, 1))]))
    with pytest.raises(ValueError, match="come after"):
        list(object_parts({}, [("op", 2, rows(2, 1)), ("a", 1, rows(1, 1))]))
    other = pa.record_batch({"x": [1]})
    with pytest.raises(ValueError, match="another schema"):
        list(object_parts({}, [("op", 1, rows(1, 1)), ("op", 2, other)]))
    assert store.list("") == []


def test_entries_round_trip_and_damage_is_found() -> None:
    data = fmt.encode_entry("durable", {"epoch": 3, "text": "\N{SNOWMAN}"})
    assert fmt.decode_entry(data, "f") == ("durable", {"epoch": 3, "text": "\N{SNOWMAN}"})
    for at in range(len(data)):
        for bit in (0, 3, 7):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(CorruptionError, match="log/7"):
                fmt.decode_entry(bytes(flipped), "log/7")
        with pytest.raises(CorruptionError, match="log/7"):
            fmt.decode_entry(data[:at], "log/7")
    with pytest.raises(CorruptionError):
        fmt.decode_entry(data + b"\n", "log/7")


def test_an_entry_of_another_version_is_not_called_damaged(monkeypatch) -> None:
    monkeypatch.setattr(fmt, "ENTRY_VERSION", 9)
    data = fmt.encode_entry("durable", {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 9") as caught:
        fmt.decode_entry(data, "log/7")
    assert not isinstance(caught.value, CorruptionError)
