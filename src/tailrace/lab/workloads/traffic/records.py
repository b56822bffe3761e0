"""Traffic as in MiSA's experiments: so many records a second, drawn around a rate; each record a text of 65 bytes.

A stream is made second by second from its seed alone: the same records come to every engine, however fast it is. Times
are whole seconds and come in order, so no engine finds a record late. Pure; a stream's iterator is used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

from tailrace.lab.registry import Batch, Parameter, Settings, Value

START_S = 1_767_225_600  # 2026-01-01 00:00:00 UTC
RECORD_BYTES = 65
BATCH_S = 3
"""Event time of a micro-batch, where nobody says otherwise."""
VALUE = "value"
SCHEMA = f"{VALUE} string"

PARAMETERS = {
    "rate": Parameter(1_500, "records of a second, on average"),
    "deviation": Parameter(10, "standard deviation of that, in percent of it"),
    "delay_s": Parameter(0, "seconds that the watermark stays behind; records come in order"),
}

Ints = NDArray[np.int64]
_SPACE, _ZERO = ord(" "), ord("0")


class Source(Protocol):
    """Makes the records of one second; called for every second in turn."""

    def second(self, at: int, count: int) -> Mapping[str, Ints]:
        """The columns of ``count`` records at second ``at``, counted from ``START_S``."""


@dataclass(frozen=True)
class Layout:
    """Where each field, a number without a sign, stands in a record: one after the other, with leading zeros."""

    widths: Mapping[str, int]

    def __post_init__(self) -> None:
        assert sum(self.widths.values()) <= RECORD_BYTES, self.widths

    def texts(self, columns: Mapping[str, Ints]) -> pa.Array:
        """The records, padded with spaces."""
        count = len(next(iter(columns.values())))
        letters = np.full((count, RECORD_BYTES), _SPACE, np.uint8)
        for name, (first, width) in self._places().items():
            powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
            letters[:, first : first + width] = columns[name][:, None] // powers % 10 + _ZERO
        offsets = np.arange(count + 1, dtype=np.int32) * RECORD_BYTES
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))

    def column(self, name: str) -> Column:
        """The field as Spark reads it out of a record."""
        first, width = self._places()[name]
        return F.substring(VALUE, first + 1, width).cast("bigint")

    def sql(self, name: str) -> str:
        """The field as DuckDB reads it out of a record."""
        first, width = self._places()[name]
        return f"CAST(substr({VALUE}, {first + 1}, {width}) AS BIGINT)"

    def _places(self) -> dict[str, tuple[int, int]]:
        places, first = {}, 0
        for name, width in self.widths.items():
            places[name] = (first, width)
            first += width
        return places


def counts(values: Mapping[str, Value], seed: int) -> Iterator[int]:
    """How many records each second has, without end."""
    rate = int(values["rate"])
    rng = np.random.default_rng((seed, 0))
    while True:
        drawn = rng.normal(rate, rate * int(values["deviation"]) / 100, 256)
        yield from (int(each) for each in np.maximum(np.rint(drawn), 0))


def seconds(source: Source, layout: Layout, values: Mapping[str, Value], seed: int) -> Iterator[pa.Table]:
    """The stream, a table for each second, without end."""
    for at, count in enumerate(counts(values, seed)):
        columns = {"t": np.full(count, START_S + at, np.int64), **source.second(at, count)}
        yield pa.table({VALUE: layout.texts(columns)})


def batches(source: Source, layout: Layout, settings: Settings) -> Iterator[pa.Table]:
    """``settings.events`` records; as many whole seconds a batch as its rows are, on average."""
    a_batch = max(1, round(settings.rows / int(settings.values["rate"])))
    stream, left = seconds(source, layout, settings.values, settings.seed), settings.events
    while left > 0:
        table = pa.concat_tables(islice(stream, a_batch)).slice(0, left)
        left -= table.num_rows
        if table.num_rows:
            yield table.combine_chunks()


def named(feed: str, tables: Iterator[pa.Table]) -> Iterator[Batch]:
    for table in tables:
        yield {feed: table}
