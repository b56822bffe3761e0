"""What turns a task's batches into an operator's frames, whatever the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tailrace.operators.ingest.event_time import IngestCounts
from tailrace.operators.ingest.frame import Frame
from tailrace.types import DataType


class Ingest(Protocol):
    counts: IngestCounts
    keep_arrivals: bool
    """Whether frames say in which order their rows came: for a recording of accesses."""

    def frame(self, batches: Sequence[pa.RecordBatch]) -> Frame:
        """The rows of these batches that are not late, sorted by shard."""


@dataclass(frozen=True)
class IngestContext:
    """What an epoch says of the rows that it ingests."""

    late_before: int
    combine: bool  # merge rows of a key before they are sent
    input_types: Mapping[str, DataType] = field(default_factory=dict)  # of all that the operator reads
    epoch: int | None = None  # for the error text of a user's function that fails
