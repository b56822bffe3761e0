"""The hash of a row's keys: Spark's ``xxhash64`` of the key columns, computed from the words of the row.

The same numbers as Spark's, so that rows which Spark shuffles by them, and state of earlier runs, lie where these say.
Computed here and not by Spark because a column more costs Spark's Arrow writer forty times what it costs this kernel.
"""

from __future__ import annotations

import numpy as np

from tailrace.operators.ingest.key_hash_kernels import H_BYTES, H_INT, H_INT128, H_LONG, hash_rows
from tailrace.state.layout import KeyWords, RecordLayout
from tailrace.state.rows.rows import Rows
from tailrace.types import Kind

_AS_INT = ("tinyint", "smallint", "int", "boolean", "date")


def hash_program(layout: RecordLayout, keys: int | None = None) -> np.ndarray:
    """For the kernel: of each key, or of the first so many, its word, its valid bit, and how it is hashed."""
    return np.array([(key.word, key.bit, _how(key)) for key in layout.keys[:keys]], np.int64).reshape(-1, 3)


def put_hashes(rows: Rows, program: np.ndarray) -> None:
    """Fill the hash word of every row; 0 where there are no keys."""
    hash_rows(rows.words, rows.heap, program)


def _how(key: KeyWords) -> int:
    if key.kind is Kind.BYTES:
        return H_BYTES
    if key.kind is Kind.INT128:
        return H_INT128
    return H_INT if key.type.name in _AS_INT else H_LONG
