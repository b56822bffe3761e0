"""What travels ahead of rows: hints for an operator's state, and when rows have passed a point.

One message goes to one server, of one point, for one operator and one try of an epoch: a header as JSON, then, where
there are hints, their columns. Where these are hashes and panes they follow as they are; keys, as an Arrow stream. Like
every message it is not pickled. Losing one costs time and no answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from tailrace.log.typed_json import MalformedError, parsed, typed
from tailrace.operators.ingest.hint_extractor import HASH_COLUMN

ACTION = "hint"
_LENGTH_BYTES = 4
_WORDS = "words"
"""In the header: the names of columns of hashes and panes, which follow as they are."""
_Names = tuple[str, ...]


@dataclass(frozen=True)
class HintMessage:
    """``passed``: rows that have passed the point, as (milliseconds before this was sent, how many).

    ``time``: the event time of the hints that follow. ``asks``: they are hashes of keys that are long, and the answer
    says which of these keys are needed: a bit for each, in bytes. ``again``: keys of which it was asked before.
    """

    run: str
    operator: str
    epoch: int
    try_: int
    point: str
    passed: tuple[tuple[float, int], ...] = ()
    time: int = 0
    asks: bool = False
    again: bool = False

    def to_bytes(self, batch: pa.RecordBatch | None = None) -> bytes:
        # Of small batches the header is a good part: what is as usual is left out. So would Arrow's be.
        given = {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}
        names = [] if batch is None or HASH_COLUMN not in batch.schema.names else batch.schema.names
        if names:
            given[_WORDS] = names
        header = json.dumps(given, separators=(",", ":")).encode()
        sink = pa.BufferOutputStream()
        sink.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
        sink.write(header)
        if batch is not None and names:
            for name in names:
                sink.write(np.ascontiguousarray(batch.column(name)))
        elif batch is not None:
            # Keys of lookup tables are small numbers, or text such as ids in hexadecimal: half of that and more is air.
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
                stream.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def from_buffer(cls, data: pa.Buffer) -> tuple[HintMessage, pa.RecordBatch | None]:
        size = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES].to_pybytes(), "little")
        raw = parsed(data[_LENGTH_BYTES:size].to_pybytes())
        names = raw.pop(_WORDS, ()) if isinstance(raw, dict) else ()
        message, names, rest = typed(cls, raw), typed(_Names, names), data[size:]
        if names:
            return message, _words(names, rest)
        return message, _keys(rest) if rest.size else None


def _keys(data: pa.Buffer) -> pa.RecordBatch:
    batch = next(iter(pa.ipc.open_stream(data)), None)
    if batch is None:
        raise MalformedError("a hint says that keys follow, and none do")
    batch.validate(full=True)  # kernels do not look whether strings lie where a column says
    return batch


def _words(names: tuple[str, ...], data: pa.Buffer) -> pa.RecordBatch:
    """Columns of as many words each."""
    each = data.size // len(names)
    if len(set(names)) < len(names) or data.size != each * len(names) or each % 8:
        raise ValueError(f"{data.size} bytes are not {len(names)} columns of words")
    # A copy, since they need not begin where a word may.
    columns = [np.frombuffer(data[n * each : (n + 1) * each].to_pybytes(), "<i8") for n in range(len(names))]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=names)
