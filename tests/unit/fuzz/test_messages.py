"""Messages that nobody of ours sends: each is refused as malformed, or is one of the right types. None does harm."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import struct
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.hostile import as_json, changed_bytes, changed_json, depth_bomb, odd_json
from tailrace.commit.manifest import Manifest
from tailrace.commit.objects import ObjectRef
from tailrace.env.files.shared_file import SharedFile, sweep, take
from tailrace.log.typed_json import MalformedError
from tailrace.operators.ingest.frame import FRAME_SCHEMA, Frame, by_shard, gathered
from tailrace.operators.ingest.hint_extractor import HASH_COLUMN, PANE_COLUMN, hinted_keys
from tailrace.server.transport.epoch_messages import OutputTicket, Request
from tailrace.server.transport.file_stage import StagedFile, StagedPart, frames_in
from tailrace.server.transport.hint_message import HintMessage
from tailrace.server.transport.local_message import BYTES_MAX, CALL, BrokenLine, receive
from tailrace.server.transport.server_config import ServerAddress
from tailrace.server.transport.stage_messages import CommittedAttempt, Exchanged, StageKey, StageReceipt
from tailrace.server.transport.wire import decode, encode
from tailrace.state.layout import VALID, Merge, record_layout
from tailrace.state.read_modify_write.store import ReadModifyWriteStore
from tailrace.state.rows.builder import RowsBuilder
from tailrace.types import BIGINT, DataType, Field

LONG = os.environ.get("TAILRACE_TEST_LONG") == "1"
SOME, MANY = (2000, 20_000) if LONG else (60, 300)
RANDOM = st.randoms(use_true_random=False)

KEY = StageKey("run", "op", 3, 0, 7, 1)
RECEIPT = StageReceipt(2, 30, 400, 2**64 - 1)
REF = ObjectRef("deltas/1", 1, 1, ((0, 4),), 100, (("op", 5), ("other", None)))
MANIFEST = Manifest(2, "run", 0, (REF,), {"w": 1}, horizons={"op": -5}, plan="plan", parent=6)
REQUEST = Request(
    "run", 3, 1, "op", (CommittedAttempt(0, 7, 30, 5),), -(2**63), 10, 11, manifest=MANIFEST, shards=(0, 1),
    deltas=("deltas/1",), routes=((ServerAddress("s", "grpc://x", "h", 1, 2, "log"), 0, 4),),
)  # fmt: skip
MESSAGES: dict[str, tuple[Any, Any]] = {
    "stage key": (lambda data: decode(StageKey, data), encode(KEY)),
    "receipt": (lambda data: decode(StageReceipt, data), encode(RECEIPT)),
    "ticket": (lambda data: decode(OutputTicket, data), encode(OutputTicket("run", "op", 3, 0, 1, 2))),
    "part": (StagedPart.from_json, StagedPart(KEY, "handed-3-x", (8, 16), 0).to_json()),
    "file": (StagedFile.from_json, StagedFile(KEY, "handed-3-x", (8, 16), RECEIPT, 1).to_json()),
    "exchanged": (Exchanged.from_json, Exchanged(1, 2, 3, (RECEIPT,)).to_json()),
    "request": (Request.from_json, REQUEST.to_json()),
}


def _well_typed(value: Any) -> bool:
    """Every scalar is where one of its kind belongs: by the annotations, read here as text."""
    kinds = {"int": int, "str": str, "bool": bool, "float": float}
    for each in fields(value):
        wanted = kinds.get(str(each.type).split(" |")[0])
        found = getattr(value, each.name)
        if wanted is not None and found is not None and type(found) is not wanted:
            return False
        if wanted is int and not -(2**63) <= found < 2**64:
            return False
    return True


@pytest.mark.parametrize("name", list(MESSAGES))
@settings(max_examples=SOME)
@given(rng=RANDOM)
def test_a_message_is_refused_or_well_typed(name: str, rng: random.Random) -> None:
    read, right = MESSAGES[name]
    kind = rng.randrange(5)
    if kind < 3:
        changed = as_json(changed_json(rng, json.loads(right)))
    else:
        changed = changed_bytes(rng, right) if kind == 3 else as_json(odd_json(rng))
    try:
        found = read(changed)
    except MalformedError as error:
        assert len(str(error)) < 1000
        return
    assert _well_typed(found)


@pytest.mark.parametrize("name", list(MESSAGES))
def test_a_right_message_is_read_and_a_deep_one_is_not(name: str) -> None:
    read, right = MESSAGES[name]
    assert read(right) is not None
    for wrong in (b"", b"{", depth_bomb(), b"\xff\xfe", b"1" * 5000, b"null", b"{}"):
        with pytest.raises(MalformedError):
            read(wrong)


def test_requests_come_back_as_they_were() -> None:
    assert Request.from_json(REQUEST.to_json()).to_json() == REQUEST.to_json()


# Hints ---------------------------------------------------------------------------------------------------------------

KEYS = (Field("k", DataType("string")), Field("n", DataType("int")))
WORDS = pa.RecordBatch.from_pydict({HASH_COLUMN: pa.array([1, 2, 3]), PANE_COLUMN: pa.array([0, 0, 5])})
WHOLE = pa.RecordBatch.from_pydict({"k": pa.array(["a", None, "ccc"]), "n": pa.array([1, 2, None], pa.int32())})
HINT = HintMessage("run", "op", 3, 0, "source", ((1.5, 3),), 9)


@settings(max_examples=MANY)
@given(rng=RANDOM, batch=st.sampled_from([WORDS, WHOLE, None]))
def test_a_hint_is_refused_or_names_keys(rng: random.Random, batch: pa.RecordBatch | None) -> None:
    right = HINT.to_bytes(batch)
    assert HintMessage.from_buffer(pa.py_buffer(right))[0] == HINT
    try:
        message, found = HintMessage.from_buffer(pa.py_buffer(changed_bytes(rng, right)))
        assert _well_typed(message)
        if found is not None:
            keys = hinted_keys(found, message.time, KEYS)
            assert len(keys.hashes) == len(keys.times) == len(found)
    except (ValueError, KeyError, OSError, pa.ArrowException):
        pass


# Frames --------------------------------------------------------------------------------------------------------------

SHARDS = 4
LAYOUT = record_layout([Field("k", DataType("string"))], [(Merge.ADD, BIGINT)], ansi=False)


def _frame() -> Frame:
    builder = RowsBuilder(20, LAYOUT)
    key, number = LAYOUT.keys[0], LAYOUT.accumulators[0]
    builder.put(pa.array([None, *(f"key {i}" for i in range(19))]), key.type, key.word, key.bit)
    builder.put(pa.array(range(20), pa.int64()), number.type, number.word, number.bit)
    rows = builder.finish()
    rows.words[:, 0] = np.arange(20) * 0x1234567
    return by_shard(rows, SHARDS, keep_arrivals=True)


RIGHT = [np.ascontiguousarray(cell).reshape(-1).tobytes() for cell in _frame().cells]


def _read(batch: pa.RecordBatch) -> Frame:
    frame = Frame.from_batch(batch, LAYOUT.words)
    frame.check(LAYOUT, SHARDS)
    return frame


def _use(frame: Frame) -> None:
    """Through the kernels that would go astray."""
    (together,) = gathered([Frame(frame.rows, frame.heap, frame.bounds)] * 2, LAYOUT) or [frame]
    store = ReadModifyWriteStore(LAYOUT, range(SHARDS), 1)
    store.merge(0, [together.parts()])
    store.delta()
    store.close()


@settings(max_examples=MANY)
@given(rng=RANDOM)
def test_a_frame_is_refused_or_lies_within_itself(rng: random.Random) -> None:
    cells = list(RIGHT)
    which = rng.randrange(4)
    cells[which] = changed_bytes(rng, cells[which])
    if rng.randrange(2):  # a word of a row, as a string's place may be
        words = np.frombuffer(cells[0], np.uint8)[: len(cells[0]) // 8 * 8].view(np.int64).copy()
        if len(words):
            places = [-1, 2**63 - 1, -(2**63), 10**6, len(RIGHT[1]) - 3, len(RIGHT[1]) - 1]
            words[rng.randrange(len(words))] = rng.choice(places)
            cells[0] = words.tobytes()
    batch = pa.RecordBatch.from_arrays([pa.array([cell], pa.large_binary()) for cell in cells], schema=FRAME_SCHEMA)
    try:
        frame = _read(batch)
    except (ValueError, pa.ArrowException):
        return
    _use(frame)


@settings(max_examples=MANY)
@given(rng=RANDOM)
def test_a_stream_of_frames_is_refused_or_lies_within_itself(rng: random.Random) -> None:
    """Changed where Arrow reads it: lengths and offsets that point elsewhere."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, FRAME_SCHEMA) as stream:
        stream.write_batch(_frame().to_batch())
    changed = changed_bytes(rng, sink.getvalue().to_pybytes())
    try:
        frames = [_read(batch) for batch in pa.ipc.open_stream(changed)]
    except (ValueError, IndexError, OSError, pa.ArrowException):
        return
    for frame in frames:
        _use(frame)


def test_frames_of_other_shapes_are_refused() -> None:
    whole = pa.array([RIGHT[0]], pa.large_binary())
    batches = [
        pa.record_batch([pa.array([b"x"])] * 4, names=list("abcd")),
        pa.record_batch([whole] * 3, names=list("abc")),
        pa.record_batch([pa.array([1])] * 4, names=list("abcd")),
        pa.record_batch([pa.array([b"", b""], pa.large_binary())] * 4, schema=FRAME_SCHEMA),
    ]
    for batch in batches:
        with pytest.raises(ValueError):
            _read(batch)
    assert _read(_frame().to_batch()).n == 20
    frame = _frame()
    rows = frame.rows.copy()
    there = np.flatnonzero(rows[:, VALID] >> LAYOUT.keys[0].bit & 1)
    rows[there[0], LAYOUT.keys[0].word] = len(frame.heap)
    with pytest.raises(ValueError, match="lie beyond"):
        _read(Frame(rows, frame.heap, frame.bounds).to_batch())


# Files ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=SOME)
@given(
    sizes=st.lists(st.sampled_from([0, 8, 20, 100, -8, -100, 10**6, -(10**6), 2**62, 2**63]), max_size=8),
    name=st.none() | st.text(max_size=20) | st.sampled_from(["../x", "handed-1-../x", "handed-1-", "handed-x-y"]),
)
def test_a_file_of_frames_is_refused_or_lies_within_itself(sizes: list[int], name: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = SharedFile(folder, 3)
        file.write([np.arange(16)])
        file.close()
        staged = StagedFile(KEY, file.name if name is None else name, tuple(sizes), RECEIPT)
        try:
            for batch in frames_in(folder, staged):
                assert all(len(batch.column(i)[0].as_py()) <= 128 for i in range(4))
        except (ValueError, OSError, pa.ArrowException):
            pass


@pytest.mark.parametrize("name", ["handed-x-y", "handed--1-x", "handed-3", "handed-3-x\n", "../handed-3-x"])
def test_a_file_that_no_sender_makes_is_neither_taken_nor_swept(name: str, tmp_path: Path) -> None:
    there = tmp_path / "folder" / name
    (tmp_path / "folder").mkdir()
    there.write_bytes(b"12345678")
    sweep(str(tmp_path / "folder"), 100)
    assert there.exists()
    with pytest.raises(ValueError, match="is not the name"):
        take(str(tmp_path / "folder"), name, spare=True)


# Local RPC -----------------------------------------------------------------------------------------------------------


def _call(*parts: bytes) -> bytes:
    return struct.pack("<BI", CALL, len(parts)) + struct.pack(f"<{len(parts)}Q", *map(len, parts)) + b"".join(parts)


@settings(max_examples=MANY)
@given(rng=RANDOM, noise=st.none() | st.binary(max_size=40))
def test_a_line_ends_or_gives_a_message(rng: random.Random, noise: bytes | None) -> None:
    data = changed_bytes(rng, _call(b"ping", b"{}")) if noise is None else noise
    here, there = socket.socketpair()
    with there:
        here.sendall(data)
        here.close()
        try:
            while (message := receive(there, 1 << 20)) is not None:
                assert sum(map(len, message[1])) <= len(data)
        except BrokenLine:
            pass


def test_what_is_only_announced_takes_no_memory() -> None:
    """A length that nothing follows must not make the server reserve it."""
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(10)
        here.sendall(struct.pack("<BI2Q", CALL, 2, 4, BYTES_MAX - 4) + b"ping")
        here.shutdown(socket.SHUT_WR)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(BrokenLine):
            receive(there)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "in kilobytes"
