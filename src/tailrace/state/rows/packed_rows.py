"""Several rows of a key as one record: its rows lie one after the other in one byte string.

So the rows of a key are found, moved to disk and brought back together, whatever their number. A packed record has the
keys of the rows and one value, the string: the number of rows (4 bytes), then for each row its valid bits without those
of the keys, and its words behind the keys (8 bytes each), then the rows' own strings, length-prefixed; the word of
such a string is how far it lies from the beginning of the packed one.

Of top lists a packed string never leaves the machine: sections have the rows themselves. State variables of processors
are kept in checkpoints in this form: a change of it needs a new format version (docs/reference/log-format.md).

Threads: pure functions.
"""

from __future__ import annotations

import numpy as np

from tailrace.state.layout import RecordLayout
from tailrace.state.rows import packed_kernels as pk
from tailrace.state.rows.rows import Rows, plain

_BYTES_MAX = 1 << 31


def pack(rows: Rows, chosen: np.ndarray, starts: np.ndarray, layout: RecordLayout) -> Rows:
    """A record for each group of rows ``chosen[starts[g]:starts[g + 1]]``, all of one key; none may be empty."""
    first = layout.accumulators[0].word
    sizes = np.empty(len(starts) - 1, np.int64)
    pk.packed_sizes(rows.words, rows.heap, chosen, starts, first, layout.bytes_words, sizes)
    if len(sizes) and int(sizes.max()) > _BYTES_MAX:
        raise OverflowError(f"the rows kept for one key take {sizes.max():,} bytes, and at most {_BYTES_MAX:,} can be")
    ends = np.cumsum(sizes)
    out = Rows(np.zeros((len(sizes), first + 1), np.int64), np.empty(int(ends[-1]) if len(ends) else 0, np.uint8))
    pk.pack(
        rows.words, rows.heap, chosen, starts, ends - sizes, first, layout.bytes_words, layout.key_mask,
        out.words, out.heap,
    )  # fmt: skip
    return out


def row_starts(records: Rows, layout: RecordLayout) -> np.ndarray:
    """int64[records + 1]: which rows are whose, counted through all records."""
    records = plain(records)
    counts = np.empty(len(records), np.int64)
    pk.packed_counts(records.words, records.heap, layout.accumulators[0].word, counts)
    starts: np.ndarray = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return starts


def unpack(records: Rows, layout: RecordLayout) -> tuple[Rows, np.ndarray]:
    """The rows of all records, and where those of each start. They share the records' strings."""
    records = plain(records)
    starts = row_starts(records, layout)
    out = np.empty((int(starts[-1]), layout.words), np.int64)
    first = layout.accumulators[0].word
    pk.unpack(records.words, records.heap, first, layout.bytes_words, layout.key_mask, starts, out)
    return Rows(out, records.heap), starts
