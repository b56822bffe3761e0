"""A shard's sections in pieces: all that is known of some keys at a time, so that no shard is ever in memory whole.

Restoring and compacting look at a key's records in all sections of its shard. Where a shard is large, its sections are
read once, batch by batch, and each row goes to a file of its piece, which follows from the hash of its key. Then piece
after piece comes back.

Invariants
- A key is in one piece, with all of its rows, in the order of the sections and, inside one, as they were written.
- A piece holds one batch of each section that has rows of it: what belongs together, only operators know.
- In memory are one batch of a section, and one piece.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tailrace.env.files.scratch import SpilledBatches

PIECE_ROWS = 1 << 17
PIECE_BYTES = 16 << 20
"""What a piece has about at most, unless one key has more. Compacting takes some 250 bytes for a row of it."""
_HASH = "__hash"
_MIX = np.uint64(0x9E3779B97F4A7C15)

Sections = Iterable[tuple[int, pa.RecordBatch]]
"""Batches, each with the number of its section; those of a section follow each other."""


def in_pieces(sections: Sections, rows: int, bytes_: int, folder: str | None = None) -> Iterator[list[pa.RecordBatch]]:
    """The sections cut by key, oldest first. ``rows``, ``bytes_``: of all of them. One piece where they are few.

    ``folder``: for what goes to disk meanwhile.
    """
    count = max(-(-rows // PIECE_ROWS), -(-bytes_ // PIECE_BYTES))
    if count <= 1:
        yield _joined(sections)
        return
    files: list[_PieceFile] = [_PieceFile(folder) for _ in range(count)]
    try:
        for number, batch in sections:
            if _HASH not in batch.schema.names:
                raise ValueError(f"a section without {_HASH} cannot be cut by its keys: {batch.schema.names}")
            _divide(number, batch, files)
        for file in files:
            yield _joined(file.batches())
            file.close()
    finally:
        for file in files:
            file.close()


class _PieceFile:
    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._numbers: list[int] = []
        self._rows: SpilledBatches | None = None

    def write(self, number: int, batch: pa.RecordBatch) -> None:
        if self._rows is None:
            self._rows = SpilledBatches(self._folder, batch.schema)
        self._rows.write(batch)
        self._numbers.append(number)

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        for at, number in enumerate(self._numbers):
            assert self._rows is not None
            yield number, self._rows.batch(at)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None


def _divide(number: int, batch: pa.RecordBatch, files: list[_PieceFile]) -> None:
    hashes = batch.column(_HASH).to_numpy().view(np.uint64)
    owners = ((hashes * _MIX >> np.uint64(32)) * np.uint64(len(files)) >> np.uint64(32)).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(len(files) + 1))
    sorted_ = batch.take(pa.array(order))
    for file, low, high in zip(files, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if low < high:
            file.write(number, sorted_.slice(low, high - low))


def _joined(sections: Sections) -> list[pa.RecordBatch]:
    """Each section as one batch."""
    out: list[list[pa.RecordBatch]] = []
    last: int | None = None
    for number, batch in sections:
        if number != last:
            out.append([])
        out[-1].append(batch)
        last = number
    return [parts[0] if len(parts) == 1 else pa.concat_batches(parts) for parts in out]
