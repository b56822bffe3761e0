"""Staging by a file: where task and server share a machine, frames go through memory that both see.

A socket would copy every byte four times and keep both ends busy. The task writes its frames into a file in the
server's folder and sends one call that says what lies where; the server maps it, compares, and takes it over. When its
frames are gone, the next task writes into the same pages. Fencing, receipts and winners are those of any stage.

Threads: a writer belongs to one task.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

import pyarrow as pa

from tailrace.env.handed_file import HandedFile, places, take
from tailrace.operators.frame import FRAME_SCHEMA, Frame
from tailrace.server.protocol import NOTHING_STAGED, StageKey, StageReceipt

ACTION = "stage_file"


@dataclass(frozen=True)
class StagedFile:
    """What a file holds. ``sizes``: bytes of the cells of each frame in turn."""

    key: StageKey
    name: str
    sizes: tuple[int, ...]
    receipt: StageReceipt

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> StagedFile:
        raw = json.loads(data)
        return cls(StageKey(**raw["key"]), raw["name"], tuple(raw["sizes"]), StageReceipt(**raw["receipt"]))


class FileStageWriter:
    """One attempt's frames for one server. Rows count only after ``finish``."""

    def __init__(self, act: Callable[[str, bytes], None], folder: str, key: StageKey) -> None:
        self._act = act
        self._folder = folder
        self._key = key
        self._receipt = NOTHING_STAGED
        self._file: HandedFile | None = None
        self._sizes: list[int] = []

    def write(self, frame: Frame) -> None:
        if self._file is None:
            self._file = HandedFile(self._folder, self._key.epoch, spare=True)
        parts = frame.cells
        self._file.write(parts)
        self._sizes += [part.nbytes for part in parts]
        self._receipt = self._receipt.after(frame.n, frame.nbytes, frame.checksum())

    def finish(self) -> StageReceipt:
        """The server has all of it and has compared. The receipt goes to the driver."""
        if self._file is not None:
            self._file.close()
            self._act(ACTION, StagedFile(self._key, self._file.name, tuple(self._sizes), self._receipt).to_json())
            self._file = None
        return self._receipt

    def abort(self) -> None:
        """Take back what was not finished."""
        if self._file is not None:
            self._file.remove()
            self._file = None

    def __enter__(self) -> FileStageWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


def frames_in(folder: str, staged: StagedFile) -> list[pa.RecordBatch]:
    """The frames of a file, mapped, as they come over a stream. The file is the caller's from then on."""
    memory = pa.py_buffer(take(folder, staged.name, spare=True))
    spans = places(staged.sizes)
    if not spans or spans[-1][1] > memory.size:
        raise ValueError(f"{staged.name} holds {memory.size} bytes and not what {staged.sizes} says")
    cells = [_cell(memory.slice(low, high - low)) for low, high in spans]
    width = len(FRAME_SCHEMA)
    return [
        pa.RecordBatch.from_arrays(cells[at : at + width], schema=FRAME_SCHEMA) for at in range(0, len(cells), width)
    ]


def _cell(data: pa.Buffer) -> pa.Array:
    edges = pa.array([0, data.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, edges, data])
