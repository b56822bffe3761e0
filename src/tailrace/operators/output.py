"""What operators emit: its schema, the pieces in which it is made, and where it waits for its readers.

Invariants
- An output takes no memory beyond the server's transit memory: the batches that find no room there lie on the scratch
  disk, and are read from there one by one.
- What was collected is complete and does not change. Who reads it holds on to it, also after it was released.

Threads: one collects; any number read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import pyarrow as pa

from tailrace.env.files.scratch import SpilledBatches
from tailrace.operators.resources import Resources
from tailrace.operators.spec import OperatorSpec
from tailrace.state.rows.columns import arrow_type
from tailrace.state.rows.rows import Rows
from tailrace.types import Field

OUTPUT_ROWS_MAX = 1 << 16
OUTPUT_BYTES_MAX = 1 << 30
"""Of the strings and states of one batch, about."""

_log = logging.getLogger(__name__)


def output_schema(spec: OperatorSpec) -> pa.Schema:
    return schema_of(spec.emits)


def schema_of(fields: Iterable[Field]) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in fields])


def output_pieces(rows: Rows) -> Iterator[Rows]:
    """Rows cut before Arrow is made of them: the strings of one batch must stay below 2 GiB, and so must its lists.

    A key's set or sketch may have millions of bytes, so rows are counted by what they have on average.
    """
    step = OUTPUT_ROWS_MAX
    if len(rows.heap) > OUTPUT_BYTES_MAX:
        step = max(1, min(step, len(rows) * OUTPUT_BYTES_MAX // len(rows.heap)))
    for at in range(0, len(rows), step):
        yield Rows(rows.words[at : at + step], rows.heap)


class _Batches(Sequence[pa.RecordBatch]):
    """Batches by their numbers. A slice is a part, whose batches are each read when it is asked for."""

    @overload
    def __getitem__(self, at: int) -> pa.RecordBatch: ...
    @overload
    def __getitem__(self, at: slice) -> OutputPart: ...
    def __getitem__(self, at: int | slice) -> pa.RecordBatch | OutputPart:
        return self._part(at) if isinstance(at, slice) else self._batch(at)

    def _part(self, at: slice) -> OutputPart:
        raise NotImplementedError

    def _batch(self, number: int) -> pa.RecordBatch:
        raise NotImplementedError


class EpochOutput(_Batches):
    """Batches in memory and on disk, in their order."""

    def __init__(self, batches: Iterable[pa.RecordBatch], resources: Resources) -> None:
        self._transit = resources.transit
        self._folder = resources.folder
        self._batches: list[pa.RecordBatch | int] = []  # a number: of a batch that is spilled
        self._spill: SpilledBatches | None = None
        self._spilled = self._held_bytes = 0
        self.rows = self.nbytes = 0
        try:
            for batch in batches:
                self._add(batch)
        except BaseException:
            self.release()
            raise

    def _add(self, batch: pa.RecordBatch) -> None:
        size = batch.nbytes
        self.rows += batch.num_rows
        self.nbytes += size
        if self._transit is None or self._folder is None:
            self._batches.append(batch)
        elif self._transit.take(size):
            self._held_bytes += size
            self._batches.append(batch)
        elif self._spills(batch):
            self._batches.append(self._spilled)
            self._spilled += 1
        else:
            self._batches.append(batch)

    def _spills(self, batch: pa.RecordBatch) -> bool:
        """A full disk must not cost a server its state: the batch then stays in memory, whatever that comes to."""
        assert self._folder is not None
        try:
            if self._spill is None:
                self._spill = SpilledBatches(self._folder, batch.schema)
            self._spill.write(batch)
        except OSError as error:
            _log.warning("an output stays in memory, since it could not be written to %s: %s", self._folder, error)
            return False
        return True

    def release(self) -> None:
        """It counts no longer: whoever still reads it will soon be done."""
        if self._transit is not None:
            self._transit.give_back(self._held_bytes)
        self._held_bytes = 0

    def part(self, number: int, parts: int) -> OutputPart:
        """One of so many parts, about equal in batches; the same one is always cut alike."""
        low, high = (len(self) * edge // parts for edge in (number, number + 1))
        return OutputPart(self, range(low, high))

    def __len__(self) -> int:
        return len(self._batches)

    def _part(self, at: slice) -> OutputPart:
        return OutputPart(self, range(len(self))[at])

    def _batch(self, number: int) -> pa.RecordBatch:
        batch = self._batches[number]
        if not isinstance(batch, int):
            return batch
        assert self._spill is not None
        return self._spill.batch(batch)


class OutputPart(_Batches):
    """Some batches of an output."""

    def __init__(self, output: EpochOutput, numbers: range) -> None:
        self._output = output
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def _part(self, at: slice) -> OutputPart:
        return OutputPart(self._output, self._numbers[at])

    def _batch(self, number: int) -> pa.RecordBatch:
        return self._output[self._numbers[number]]
