"""Raw rows of append stores in plain Python, to frames and back. Hashes are chosen by the test: so they can collide."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from support.random_columns import draw
from tailrace.operators.ingest.frame import by_shard
from tailrace.state.layout import Merge, RecordLayout, record_layout
from tailrace.state.rows.rows import Rows
from tailrace.state.sections import sections
from tailrace.types import DataType, Field

KEYS = ("string", "decimal(38,10)")
VALUES = ("binary", "double", "decimal(38,38)", "bigint")
LAYOUT = record_layout(
    [Field(f"k{i}", DataType(name)) for i, name in enumerate(KEYS)],
    [(Merge.ROW, DataType(name)) for name in VALUES],
    ansi=False,
)


@dataclass(frozen=True)
class Row:
    hash: int
    pane: int
    key: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def list_key(self) -> tuple[int, int, str]:
        return self.pane, self.hash, repr(self.key)

    @property
    def shown(self) -> str:
        """To compare by: NaN equals itself, -0.0 is not 0.0."""
        return repr((self.pane, self.hash, self.key, self.values))


def draw_keys(rng: random.Random, count: int, hashes: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Different keys, few hashes."""
    pool = [rng.choice([0, -1, 2**63 - 1, -(2**63), rng.getrandbits(63), rng.randrange(-9, 9)]) for _ in range(hashes)]
    keys: dict[str, tuple[int, tuple[Any, ...]]] = {}
    for _ in range(count):
        key = tuple(None if rng.random() < 0.15 else draw(name, rng) for name in KEYS)
        keys.setdefault(repr(key), (rng.choice(pool), key))
    return list(keys.values())


def draw_row(rng: random.Random, key: tuple[int, tuple[Any, ...]], pane: int) -> Row:
    values = tuple(None if rng.random() < 0.2 else draw(name, rng) for name in VALUES)
    return Row(key[0], pane, key[1], values)


def to_rows(rows: Sequence[Row], layout: RecordLayout = LAYOUT) -> Rows:
    columns: list[list[Any]] = [[row.hash for row in rows], [row.pane for row in rows]]
    columns += [[row.key[i] for row in rows] for i in range(len(KEYS))]
    columns += [[row.values[i] for row in rows] for i in range(len(VALUES))]
    schema = sections.section_schema(layout)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return sections.from_section(pa.RecordBatch.from_arrays(arrays, schema=schema), layout)


def to_frame(rows: Sequence[Row], shards: int) -> tuple[Rows, np.ndarray]:
    return by_shard(to_rows(rows), shards).parts()


def from_section(batch: pa.RecordBatch) -> list[Row]:
    found = []
    for row in batch.to_pylist():
        key = tuple(_plain(row[f"k{i}"]) for i in range(len(KEYS)))
        values = tuple(_plain(row[f"a{i}"]) for i in range(len(VALUES)))
        found.append(Row(row["__hash"], row["__pane"], key, values))
    return found


def from_rows(rows: Rows) -> list[Row]:
    return from_section(sections.to_section(rows, LAYOUT))


def _plain(value: Any) -> Any:
    return Decimal(value) if isinstance(value, Decimal) else value
