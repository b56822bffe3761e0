"""Outputs by a file: where a sink's task and the server share a machine, rows go through memory that both see.

The way back of ``file_stage``: the server writes a part of an output into a file in its own folder and answers with
the file's name; the task maps it and takes it over, until its rows are read. Each reading gets a file of its own, so
that any number of tasks may read the same part.

Threads: functions without state, for any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tailrace.env.files.shared_file import SharedFile, take

ACTION = "emit_file"

MOST_BYTES = 256 << 20
"""More than this goes as a stream: so much at once would press on the memory of both, and reach the disk."""

_KEPT_EPOCHS = 2
"""A sink may read an epoch that is forgotten already, never one before the one before: then its task is dead."""


def handed(batches: Sequence[pa.RecordBatch], folder: str, epoch: int) -> str | None:
    """The name of a file with these rows; None where they should go as a stream."""
    if not batches:
        return None
    file = SharedFile(folder, epoch + _KEPT_EPOCHS, spare=True)
    try:
        # A batch at a time: each may lie on disk, and is read for this alone.
        if not file.write_batches(batches, MOST_BYTES):
            file.remove()
            return None
    except BaseException:
        file.remove()
        raise
    file.close()
    return file.name


def taken(folder: str, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file, where they lie. It is the caller's until they are read."""
    with pa.ipc.open_stream(pa.py_buffer(take(folder, name, spare=True))) as reader:
        yield from reader
