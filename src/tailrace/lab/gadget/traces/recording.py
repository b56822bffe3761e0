"""Recordings of a running query as traces: what its state servers wrote for the option ``recordAccesses``.

A recording is one file for each operator and server, since each of those owns a store. It is an Arrow IPC stream with
one batch for each epoch (docs/explanation/gadget-analysis.md). A batch replaces what came before of its epoch and of
later ones: epochs are tried again. What the file ends with in the middle, because its server was killed, is left out.

Windows of one watermark have no order between keys in the engine, which closes them shard by shard; they are brought
into the order in which state machines would go: by window, and then as they were first accessed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tailrace.lab.gadget.analysis.numbering import numbered, paired
from tailrace.lab.gadget.traces.trace import Events, Trace, TraceError, read_trace

FORMAT = "1"
SUFFIX = ".accesses"
_FORMAT_KEY = "tailrace.recording"
_ROW, _CLOSE = 0, 2
_COLUMNS = ("operation", "key", "window", "value_size", "time", "cause")


def read_any(path: Path) -> Trace:
    """A trace's file, a recording's file, or a folder with one recording."""
    if path.is_dir() or path.suffix == SUFFIX:
        return read_recording(path)
    return read_trace(path)


def read_recording(path: Path) -> Trace:
    """The trace of one recording; ``path`` is its file, or a folder in which it is the only one."""
    if path.is_dir():
        found = sorted(path.glob(f"*{SUFFIX}"))
        if len(found) != 1:
            names = ", ".join(each.name for each in found[:10])
            raise TraceError(
                f"{path} holds {len(found)} recordings: name one of {names}"
                if found
                else f"{path} holds no recording (*{SUFFIX}): start a query with the option recordAccesses"
            )
        path = found[0]
    metadata, batches = _batches(path)
    columns = {name: np.concatenate([_column(path, batch, name) for batch in batches]) for name in _COLUMNS}
    keys, _ = paired(columns["key"], columns["window"])
    order = _in_order(keys, columns["window"], columns["cause"], [batch.num_rows for batch in batches])
    rows = columns["cause"] == _ROW
    return Trace(
        operations=columns["operation"][order],
        keys=numbered(keys[order])[0],
        value_sizes=columns["value_size"][order],
        times=columns["time"][order],
        events=Events(numbered(columns["key"][rows])[0], columns["time"][rows]),
        metadata={**metadata, "origin": "recorded"},
    )


def _batches(path: Path) -> tuple[dict[str, str], list[pa.RecordBatch]]:
    """What counts of the file, epoch after epoch, and what it says of itself."""
    held: list[tuple[int, pa.RecordBatch]] = []
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            given = {name.decode(): value.decode() for name, value in (reader.schema.metadata or {}).items()}
            version = given.pop(_FORMAT_KEY, None)
            if version != FORMAT:
                raise TraceError(f"{path} is no recording of format {FORMAT}: it says {version!r}")
            nothing = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in reader.schema], schema=reader.schema)
            while True:
                try:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                except (StopIteration, pa.ArrowInvalid, OSError):
                    break  # its end, or that of what was written before its server was killed
                epoch = int((metadata or {}).get("epoch", b"0"))
                held = [(at, each) for at, each in held if at < epoch]
                held.append((epoch, batch))
    except FileNotFoundError as error:
        raise TraceError(f"there is no recording {path}") from error
    except (pa.ArrowException, OSError) as error:
        raise TraceError(f"{path} cannot be read as a recording: {error}") from error
    return given, [nothing, *(batch for _, batch in held)]


def _column(path: Path, batch: pa.RecordBatch, name: str) -> np.ndarray:
    if name not in batch.schema.names:
        raise TraceError(f"{path} has no column {name!r}; it has {', '.join(batch.schema.names)}")
    found: np.ndarray = batch.column(name).to_numpy()
    return found


def _in_order(keys: np.ndarray, windows: np.ndarray, causes: np.ndarray, sizes: list[int]) -> np.ndarray:
    """All accesses as they were, but those of windows that close in one epoch: these by window, then by first access.

    Keys are numbered by first access already. The accesses of one of them stay together: the sort is stable.
    """
    closes = causes == _CLOSE
    epoch = np.repeat(np.arange(len(sizes)), sizes)
    at = np.flatnonzero(closes)
    order = np.arange(len(keys))
    # Rows come before what closes in their epoch, so that what closes in one epoch lies together.
    order[at] = at[np.lexsort((keys[at], windows[at], epoch[at]))]
    return order
