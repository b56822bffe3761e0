"""Traces of other tools, as text: what YCSB's "basic" binding prints, Gadget's own dump, and traces of Flink.

- ``ycsb``: operation, table, key, fields. READ is a get, INSERT a put, UPDATE a put (or a merge, as in Gadget's own
  replayer). What YCSB prints beside that (properties, a summary) is passed over.
- ``gadget``: step, operation, key, value and two words.
- ``flink``: anything, operation, key.

Scans (scan, seek, next) are counted and left out: traces have none. Times count microseconds, one for each line kept.
Errors name the line.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tailrace.lab.gadget.traces.trace import Operation, Trace, TraceError

FORMATS = ("ycsb", "gadget", "flink")
VALUE_BYTES = 256
"""Where the text does not say: as the artifact's replayers have it."""
_SCANS = {"scan", "seek", "next"}
_OPERATIONS = {"get": 0, "put": 1, "merge": 2, "delete": 3}
_YCSB = {"read": 0, "insert": 1, "update": 1, "delete": 3}
_BESIDES = ("*", '"', "[")


def read_text_trace(
    path: str | Path,
    form: str,
    value_bytes: int = VALUE_BYTES,
    update: str = "put",
) -> Trace:
    """``update``: what YCSB's UPDATE becomes, ``put`` or ``merge``."""
    if form not in FORMATS:
        raise TraceError(f"no text format is called {form!r}; there are {', '.join(FORMATS)}")
    if update not in ("put", "merge"):
        raise TraceError(f"an update becomes a put or a merge, not {update!r}")
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            return _trace(lines, Path(path), form, value_bytes, update)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error}") from error


def _trace(lines: Iterable[str], path: Path, form: str, value_bytes: int, update: str) -> Trace:
    names = {**_YCSB, "update": _OPERATIONS[update]} if form == "ycsb" else _OPERATIONS
    at_operation, at_key = (0, 2) if form == "ycsb" else (1, 2)
    numbers: dict[str, int] = {}
    operations, keys, sizes = bytearray(), [], []
    scans = 0
    for number, line in enumerate(lines, 1):
        words = line.split(None, 4)
        if not words or (form == "ycsb" and line.startswith(_BESIDES)):
            continue
        name = words[at_operation].lower() if len(words) > at_operation else ""
        if name in _SCANS:
            scans += 1
            continue
        operation = names.get(name)
        if operation is None or len(words) <= at_key:
            known = ", ".join((*names, *sorted(_SCANS)))
            what = f"column {at_operation} is the operation ({known}) and column {at_key} the key"
            raise TraceError(f"line {number} of {path}: {line.strip()[:80]!r} is no {form} access: {what}")
        operations.append(operation)
        keys.append(numbers.setdefault(words[at_key], len(numbers)))
        if operation not in (Operation.PUT, Operation.MERGE):
            sizes.append(0)
        else:
            sizes.append(len(words[3]) if form == "gadget" and len(words) > 3 else value_bytes)
    if not operations:
        raise TraceError(f"{path} holds no {form} accesses")
    key_bytes = 8 if form == "ycsb" else max(1, round(sum(map(len, numbers)) / len(numbers)))
    return Trace(
        np.frombuffer(bytes(operations), np.uint8),
        np.array(keys, np.int64),
        np.array(sizes, np.int32),
        np.arange(len(keys), dtype=np.int64),
        None,
        {
            "workload": path.stem,
            "origin": "imported",
            "format": form,
            "key_bytes": str(key_bytes),
            "scans_left_out": str(scans),
            **({"preloaded": "true"} if form == "ycsb" else {}),
        },
    )
