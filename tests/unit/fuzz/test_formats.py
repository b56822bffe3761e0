"""Stored files that nobody of ours wrote: refused by name, whatever is in them, also where every checksum is right."""

from __future__ import annotations

import base64
import json
import os
import random
import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.hostile import as_json, changed_bytes, changed_json, checked_entry, depth_bomb, wrong_entry
from support.models.commit import section
from tailrace.commit.epoch_config import put_epoch_config, read_epoch_config
from tailrace.commit.log import CommitLog, Damaged, Fence
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef, open_object, read_sections, write_object
from tailrace.commit.plan_file import read_plan, write_plan
from tailrace.env.randomness import short_id
from tailrace.env.stores.cloud_store import CloudStore
from tailrace.errors import CheckpointError, CorruptionError
from tailrace.log import filenames
from tailrace.log import format as fmt

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SOME, MANY = (2000, 20_000) if LONG else (100, 300)
RANDOM = st.randoms(use_true_random=False)
RUN = "0123456789abcdef"
SCALARS = {"epoch": int, "run": str, "try_": int, "plan": str, "parent": int, "floor": int, "pid": int, "host": str}


def memory() -> CloudStore:
    return CloudStore(f"memory://{short_id()}", {})


STORE = memory()


def _object() -> ObjectRef:
    rows = {shard: section({(f"key {shard} {i} \N{SNOWMAN}", i): i for i in range(20)}) for shard in range(3)}
    return write_object(
        STORE, run=RUN, try_=0, server=0, first_epoch=3, last_epoch=3, shards=((0, 8),),
        sections={"op": rows, "another": {1: rows[1]}}, horizons={"op": -7},
    )  # fmt: skip


REF = _object()
OBJECT = STORE.get(REF.name)
MANIFEST = Manifest(3, RUN, 0, (REF,), {"w": 1}, {"in": 5}, {"combine": True}, {"op": -7}, plan="plan")


def _body(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"format": fmt.ENTRY_VERSION, "kind": kind, **body}


FENCE = _body("fence", {"run": RUN, "host": "h", "pid": 5, "at": "now"})
DURABLE = _body("durable", MANIFEST.to_json())
CONFIG = _body("epoch_config", {"epoch": 4, "epoch_config": {"combine": True}})
PLAN = _body("plan", {"plan": {"shards": 4}})


@settings(max_examples=MANY)
@given(rng=RANDOM)
def test_an_entry_of_the_log_is_damaged_or_well_typed(rng: random.Random) -> None:
    store = memory()
    store.put(filenames.entry_name(1), [wrong_entry(rng, rng.choice([FENCE, DURABLE, DURABLE]))])
    try:
        found = CommitLog(store).entry(1)
    except CheckpointError as error:
        assert filenames.entry_name(1) in str(error)
        return
    if isinstance(found, Damaged):
        assert filenames.entry_name(1) in str(found.error)
        return
    assert isinstance(found, Manifest | Fence)
    assert all(type(getattr(found, name)) is kind for name, kind in SCALARS.items() if hasattr(found, name))
    if isinstance(found, Manifest):
        assert all(type(ref.bytes) is int and type(ref.name) is str for ref in found.objects)
        assert all(type(pane) is int for pane in found.horizons.values())
        list(found.living)


@settings(max_examples=SOME)
@given(rng=RANDOM)
def test_a_config_and_a_plan_are_refused_or_objects(rng: random.Random) -> None:
    store = memory()
    store.put(filenames.epoch_config_name(4), [wrong_entry(rng, CONFIG)])
    store.put(filenames.PLAN_NAME, [wrong_entry(rng, PLAN)])
    for read in (lambda: read_epoch_config(store, 4), lambda: read_plan(store)):
        try:
            assert isinstance(read(), dict)
        except CheckpointError:
            pass


def test_right_entries_are_read_and_deep_ones_are_not() -> None:
    store = memory()
    put_epoch_config(store, 4, {"combine": True})
    write_plan(store, {"shards": 4})
    assert store.get(filenames.epoch_config_name(4)) == fmt.encode_entry("epoch_config", {
        "epoch": 4, "epoch_config": {"combine": True},
    })  # fmt: skip
    assert read_plan(store) == {"shards": 4} and read_epoch_config(store, 4) == {"combine": True}
    for right in (FENCE, DURABLE):
        store.put(filenames.entry_name(1), [checked_entry(as_json(right))])
        assert not isinstance(CommitLog(store).entry(1), Damaged)
    for wrong in (depth_bomb(), b"1" * 5000, b"\xff", b"null", b"{}"):
        with pytest.raises(CheckpointError):
            fmt.decode_entry(checked_entry(wrong), "log/1")


def _read_all(data: bytes) -> None:
    """As a restart reads it, by a manifest that has its size right."""
    store = memory()
    store.put(REF.name, [data])
    ref = ObjectRef(REF.name, 3, 3, REF.shards, len(data), REF.max_pane)
    open_object(store, ref).verify()
    for operator in ("op", "another"):
        for _, batches, _ in read_sections(store, [ref], operator, range(8)):
            for batch in batches:
                batch.to_pylist()


def _parts(data: bytes) -> tuple[bytes, dict[str, Any]]:
    length, _ = fmt.footer_length(data, "")
    end = len(data) - fmt.OBJECT_TRAILER.size
    return data[: end - length], json.loads(data[end - length : end])


@settings(max_examples=SOME)
@given(rng=RANDOM)
def test_a_damaged_object_is_refused(rng: random.Random) -> None:
    data = changed_bytes(rng, OBJECT)
    if data == OBJECT:
        return
    with pytest.raises(CheckpointError, match="delta"):
        _read_all(data)


@settings(max_examples=MANY)
@given(rng=RANDOM)
def test_an_object_with_another_index_is_refused_or_read(rng: random.Random) -> None:
    """Its checksums are right: somebody wrote it so."""
    body, index = _parts(OBJECT)
    changed = changed_json(rng, index)
    whole = body + (fmt.object_footer(changed) if isinstance(changed, dict) else fmt.object_footer({"x": changed}))
    try:
        _read_all(whole)
    except CorruptionError as error:
        assert REF.name in str(error)


@settings(max_examples=MANY)
@given(rng=RANDOM)
def test_an_object_with_other_records_is_refused_or_read(rng: random.Random) -> None:
    """Arrow's own bytes are changed, and every checksum is right: no string may lead beyond the file."""
    body, index = _parts(OBJECT)
    offset, length, _, rows = index["operators"]["another"]["batches"][0]
    batch = bytearray(body[offset : offset + length])
    for _ in range(rng.randrange(1, 7)):
        batch[rng.randrange(length)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    index["operators"]["another"]["batches"][0] = [offset, length, zlib.crc32(bytes(batch)), rows]
    whole = body[:offset] + bytes(batch) + body[offset + length :] + fmt.object_footer(index)
    try:
        _read_all(whole)
    except CorruptionError as error:
        assert REF.name in str(error)
    except UnicodeDecodeError:
        pass  # of the test's own reading of the strings: stores keep bytes


def test_strings_that_lead_beyond_an_object_are_refused() -> None:
    body, index = _parts(OBJECT)
    (place,) = index["operators"]["another"]["batches"]
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(index["operators"]["another"]["schema"])))
    found = pa.ipc.read_record_batch(pa.py_buffer(body[place[0] : place[0] + place[1]]), schema)
    strings = next(column for column in found.columns if pa.types.is_string(column.type))
    edges = strings.buffers()[1].to_pybytes()
    at = body.index(edges, place[0]) + 8
    for value in (2**31 - 1, -1):
        wrong = bytearray(body)
        wrong[at : at + 4] = value.to_bytes(4, "little", signed=True)
        place[2] = zlib.crc32(bytes(wrong[place[0] : place[0] + place[1]]))
        with pytest.raises(CorruptionError, match="cannot be read"):
            _read_all(bytes(wrong) + fmt.object_footer(index))
