"""Coverage-guided fuzzing of what servers and drivers read from others: messages, log entries, objects.

Run as ``python scripts/fuzz.py <target> [libFuzzer's options]``, for instance ``message -max_total_time=300``; needs
``atheris``, which is installed where it is wanted (``pip install atheris``). It starts from right inputs, and goes on
until one raises what it should not, which it then writes into a file and prints, or until its time is over.

``tests/unit/fuzz`` asks the same of inputs that are drawn without a look at the code they reach.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

try:
    atheris: Any = importlib.import_module("atheris")
except ImportError:
    sys.exit("scripts/fuzz.py needs atheris: pip install atheris")

with atheris.instrument_imports(include=["tailrace.log", "tailrace.commit", "tailrace.server.transport"]):
    import pyarrow as pa

    from tailrace.commit.log import CommitLog
    from tailrace.commit.manifest import Manifest
    from tailrace.commit.objects import ObjectRef, open_object
    from tailrace.env.stores.cloud_store import CloudStore
    from tailrace.errors import CheckpointError
    from tailrace.log import filenames
    from tailrace.log import format as fmt
    from tailrace.log.typed_json import MalformedError
    from tailrace.server.transport.epoch_messages import OutputTicket, Request
    from tailrace.server.transport.file_stage import StagedFile, StagedPart
    from tailrace.server.transport.hint_message import HintMessage
    from tailrace.server.transport.stage_messages import CommittedAttempt, Exchanged, StageKey, StageReceipt
    from tailrace.server.transport.wire import decode, encode

_READERS: tuple[Callable[[bytes], Any], ...] = (
    Request.from_json,
    StagedFile.from_json,
    StagedPart.from_json,
    Exchanged.from_json,
    lambda data: decode(StageKey, data),
    lambda data: decode(StageReceipt, data),
    lambda data: decode(OutputTicket, data),
)
_NAME = "deltas/fuzz"


def message(data: bytes) -> None:
    """JSON messages: the first byte chooses which."""
    try:
        _READERS[data[0] % len(_READERS) if data else 0](data[1:])
    except MalformedError:
        pass


def hint(data: bytes) -> None:
    try:
        HintMessage.from_buffer(pa.py_buffer(data))
    except (ValueError, OSError, pa.ArrowException):
        pass


def entry(data: bytes) -> None:
    """A log entry whose checksum is right."""
    covered = b'{"body":' + data
    store = CloudStore("memory://fuzz-entry", {})
    store.put(filenames.entry_name(1), [covered + b',"crc32":"' + f"{zlib.crc32(covered):08x}".encode() + b'"}\n'])
    try:
        CommitLog(store).entry(1)
    except CheckpointError:
        pass


def footer(data: bytes) -> None:
    """An object whose index has a right checksum."""
    whole = fmt.object_header() + data + fmt.OBJECT_TRAILER.pack(len(data), fmt.footer_crc(data), fmt.OBJECT_END_MAGIC)
    store = CloudStore("memory://fuzz-object", {})
    store.put(_NAME, [whole])
    try:
        open_object(store, ObjectRef(_NAME, 1, 1, ((0, 4),), len(whole), ())).verify()
    except CheckpointError:
        pass


_KEY, _RECEIPT = StageKey("run", "op", 3, 0, 7, 1), StageReceipt(2, 30, 400, 5)
_REF = ObjectRef(_NAME, 1, 1, ((0, 4),), 100, (("op", 5),))
_MANIFEST = Manifest(2, "run", 0, (_REF,), {"w": 1}, horizons={"op": -5}, plan="plan", parent=6)
_REQUEST = Request("run", 3, 1, "op", (CommittedAttempt(0, 7, 30, 5),), manifest=_MANIFEST, shards=(0, 1))
_WORDS = pa.RecordBatch.from_pydict({"__hash": pa.array([1, 2]), "__pane": pa.array([0, 5])})
_INDEX = {"name": _NAME, "epochs": [1, 1], "shards": [[0, 4]], "horizons": {}, "max_pane": {}, "operators": {}}

TARGETS: dict[Callable[[bytes], None], list[bytes]] = {
    message: [
        b"\0" + _REQUEST.to_json(),
        b"\1" + StagedFile(_KEY, "handed-3-x", (8, 16), _RECEIPT, 1).to_json(),
        b"\2" + StagedPart(_KEY, "handed-3-x", (8, 16), 0).to_json(),
        b"\3" + Exchanged(1, 2, 3, (_RECEIPT,)).to_json(),
        b"\4" + encode(_KEY),
        b"\5" + encode(_RECEIPT),
        b"\6" + encode(OutputTicket("run", "op", 3, 0, 1, 2)),
    ],
    hint: [
        HintMessage("run", "op", 3, 0, "source", ((1.5, 3),), 9).to_bytes(batch)
        for batch in (None, _WORDS, pa.RecordBatch.from_pydict({"k": pa.array(["a", None])}))
    ],
    entry: [
        fmt.encode_entry(kind, body)[len(b'{"body":') : -len(b',"crc32":"00000000"}\n')]
        for kind, body in {
            "durable": _MANIFEST.to_json(),
            "fence": {"run": "run", "host": "h", "pid": 5, "at": "now"},
        }.items()
    ],
    footer: [json.dumps(_INDEX).encode()],
}


def main() -> None:
    by_name = {each.__name__: each for each in TARGETS}
    if len(sys.argv) < 2 or sys.argv[1] not in by_name:
        sys.exit(f"scripts/fuzz.py {'|'.join(by_name)} [-max_total_time=60] [-runs=100000]")
    target = by_name[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory() as corpus:
        for number, right in enumerate(TARGETS[target]):
            target(right)
            Path(corpus, str(number)).write_bytes(right)
        atheris.Setup([*sys.argv, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
