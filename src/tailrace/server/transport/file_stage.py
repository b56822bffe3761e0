"""Staging by a file: where task and server share a machine, frames go through memory that both see.

A socket would copy every byte four times and keep both ends busy. The task writes its frames into a file in the
server's folder and sends one call that says what lies where; the server maps it, compares, and takes it over. When its
frames are gone, the next task writes into the same pages. Fencing and receipts are those of any stage.

Or the frames come in parts, each a file of its own which is posted to the server while the task goes on: it may look at
them, and holds them until the last call says that they are all. Nothing is staged before that.

Threads: a writer belongs to one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tailrace.env.files.shared_file import SharedFile, places, take
from tailrace.operators.ingest.frame import FRAME_SCHEMA, Frame
from tailrace.server.transport.stage_messages import NOTHING_STAGED, StageKey, StageReceipt
from tailrace.server.transport.wire import decode, encode

ACTION = "stage_file"
PART_ACTION = "stage_part"


@dataclass(frozen=True)
class _FramesFile:
    """A file with frames. ``sizes``: bytes of the cells of each frame in turn."""

    key: StageKey
    name: str
    sizes: tuple[int, ...]

    def to_json(self) -> bytes:
        return encode(self)


@dataclass(frozen=True)
class StagedPart(_FramesFile):
    """One of the files of a stage. ``number``: from 0 on."""

    number: int

    @classmethod
    def from_json(cls, data: bytes) -> StagedPart:
        return decode(cls, data)


@dataclass(frozen=True)
class StagedFile(_FramesFile):
    """The last file of a stage; none where it has no name. ``parts``: how many came before."""

    receipt: StageReceipt
    parts: int = 0

    @classmethod
    def from_json(cls, data: bytes) -> StagedFile:
        return decode(cls, data)


Post = Callable[[str, bytes], None]
"""As a call, but not waited for: the next one that is waited for comes after it."""


class FileStageWriter:
    """One attempt's frames for one server. Rows count only after ``finish``."""

    def __init__(self, act: Callable[[str, bytes], None], post: Post, folder: str, key: StageKey) -> None:
        self._act, self._post = act, post
        self._folder = folder
        self._key = key
        self._receipt = NOTHING_STAGED
        self._file: SharedFile | None = None
        self._sizes: list[int] = []
        self._parts = 0

    def write(self, frame: Frame) -> None:
        if self._file is None:
            self._file = SharedFile(self._folder, self._key.epoch, spare=True)
        parts = frame.cells
        self._file.write(parts)
        self._sizes += [part.nbytes for part in parts]
        self._receipt = self._receipt.after(frame.n, frame.nbytes, frame.checksum())

    def part(self) -> None:
        """Let the server look at what was written since the last part. Waits for nothing."""
        if self._file is None:
            return
        self._file.close()
        self._post(PART_ACTION, StagedPart(self._key, self._file.name, tuple(self._sizes), self._parts).to_json())
        self._file, self._sizes = None, []
        self._parts += 1

    def finish(self) -> StageReceipt:
        """The server has all of it and has compared. The receipt goes to the driver."""
        if self._file is None and not self._parts:
            return self._receipt
        name = ""
        if self._file is not None:
            self._file.close()
            name = self._file.name
        last = StagedFile(self._key, name, tuple(self._sizes), self._receipt, self._parts)
        self._act(ACTION, last.to_json())
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


def frames_in(folder: str, staged: StagedFile | StagedPart) -> list[pa.RecordBatch]:
    """The frames of a file, mapped, as they come over a stream. The file is the caller's from then on."""
    if not staged.name and not staged.sizes:
        return []
    memory = pa.py_buffer(take(folder, staged.name, spare=True))
    spans = places(staged.sizes)
    if not spans or min(staged.sizes) < 0 or spans[-1][1] > memory.size:  # Arrow cuts buffers unseen
        raise ValueError(f"{staged.name} holds {memory.size} bytes and not what {staged.sizes} says")
    cells = [_cell(memory.slice(low, high - low)) for low, high in spans]
    width = len(FRAME_SCHEMA)
    return [
        pa.RecordBatch.from_arrays(cells[at : at + width], schema=FRAME_SCHEMA) for at in range(0, len(cells), width)
    ]


def _cell(data: pa.Buffer) -> pa.Array:
    edges = pa.array([0, data.size], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, edges, data])
