"""Segments of the unaligned store as they are written: runs become one file, some lists at a time.

The file has the rows, their strings and the columns of the index, one after the other. How much of each is left out is
not known before: so each begins where the one before ends at the latest, and holes between them take no room on disk.

Memory: a piece of rows and what is in memory of a segment, however many lists there are and however many rows.

Threads: as the instance that owns the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from tailrace.env.files.scratch import ScratchFile
from tailrace.state.append.list_runs import Index, ListRun, merged_lists
from tailrace.state.layout import RecordLayout
from tailrace.state.rows import arrange_kernels as rk
from tailrace.state.rows.rows import Rows

_BLOCK_BYTES = 4096
"""Parts of a file begin where a block of the disk does, so that a hole shares no block with what comes after it."""
_SAMPLES, _SAMPLES_A_PIECE = 512, 4


def written(runs: Sequence[ListRun], layout: RecordLayout, floor: int, folder: str, piece_bytes: int) -> ListRun | None:
    """Runs or segments, oldest first, as one segment, about ``piece_bytes`` at a time; None where nothing is left.

    Without what is gone for good or lies before ``floor``.
    """
    row_bytes = 8 * layout.words
    rows_max, heap_max = sum(len(run.rows) for run in runs), sum(len(run.rows.heap) for run in runs)
    column_bytes = 8 * (sum(map(len, runs)) + 1)
    sizes = [row_bytes * rows_max, heap_max, *[column_bytes] * 4, column_bytes * layout.has_bytes]
    rows_at, heap_at, *columns_at, _ = accumulate((size + -size % _BLOCK_BYTES for size in sizes), initial=0)
    rows_end = heap_end = lists_end = 0
    gone: list[np.ndarray] = []
    file = ScratchFile(folder)
    try:
        for parts in _key_ranges(runs, piece_bytes):
            piece = merged_lists(parts, layout, floor)
            rk.shift_strings(piece.rows.words, layout.bytes_words, heap_end)
            file.write(piece.rows.words, rows_at + row_bytes * rows_end)
            file.write(piece.rows.heap, heap_at + heap_end)
            own = piece.index
            columns = (own.keys, own.starts[:-1] + rows_end, own.triggers, own.panes, own.heap)
            for column, at in zip(columns, columns_at):
                file.write(column, at + 8 * lists_end)
            gone.append(piece.gone)
            rows_end += len(piece.rows)
            heap_end += len(piece.rows.heap)
            lists_end += len(piece)
            for run in runs:
                run.release()
        if not rows_end:
            file.close()
            return None
        file.write(np.array([rows_end]), columns_at[1] + 8 * lists_end)
        counts = (lists_end, lists_end + 1, lists_end, lists_end, lists_end * layout.has_bytes)
        types = (np.uint64, np.int64, np.int64, np.int64, np.int64)
        words, heap, *mapped = file.sealed(
            (np.int64, rows_at, layout.words * rows_end), (np.uint8, heap_at, heap_end), *zip(types, columns_at, counts)
        )
    except BaseException:
        file.close()
        raise
    return ListRun(Rows(words.reshape(-1, layout.words), heap), Index(*mapped), np.concatenate(gone), file)


def _key_ranges(runs: Sequence[ListRun], piece_bytes: int) -> Iterator[list[tuple[ListRun, int, int]]]:
    """All lists in ranges of order keys of about ``piece_bytes`` each: (run, first list, end) for every run."""
    samples, weights = [], []
    for run in runs:
        if len(run):
            data_bytes = run.rows.words.nbytes + run.rows.heap.nbytes
            count = max(_SAMPLES, _SAMPLES_A_PIECE * data_bytes // max(piece_bytes, 1))
            chosen = np.arange(0, len(run), max(1, len(run) // count))
            samples.append(run.index.keys[chosen])
            weights.append(np.full(len(chosen), data_bytes / len(chosen)))
    if not samples:
        return
    keys = np.concatenate(samples)
    order = np.argsort(keys, kind="stable")
    piece = (np.cumsum(np.concatenate(weights)[order]) // max(piece_bytes, 1)).astype(np.int64)
    cuts = np.unique(keys[order][1:][np.diff(piece) > 0])
    firsts = [0] * len(runs)
    for cut in [*cuts, None]:
        ends = [len(run) if cut is None else int(np.searchsorted(run.index.keys, cut, "left")) for run in runs]
        yield list(zip(runs, firsts, ends))
        firsts = ends
