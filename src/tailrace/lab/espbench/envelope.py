"""A message's text, ``<message id>;<send time in ms>;<row>``: made by the sender, taken apart by readers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import TailraceError

SEPARATOR = ";"


def message(number: int, sent_ms: int, row: bytes) -> bytes:
    return b"%d;%d;%b" % (number, sent_ms, row)


def taken_apart(values: pa.Array, topic: str) -> pa.Table:
    """``id``, ``sent_ms`` and ``row`` of messages. One that has no three parts is an error that names its place."""
    parts = pc.split_pattern(values.cast(pa.string()), SEPARATOR, max_splits=2)
    lengths = pc.list_value_length(parts).to_numpy(zero_copy_only=False)
    if (short := np.flatnonzero(lengths != 3)).size:
        at = int(short[0])
        raise TailraceError(f"{topic}, message {at}: {values[at]} is not <message id>;<send time>;<row>")
    flat = pc.list_flatten(parts)
    places = np.arange(0, len(flat), 3)
    return pa.table(
        {
            "id": flat.take(pa.array(places)).cast(pa.int64()),
            "sent_ms": flat.take(pa.array(places + 1)).cast(pa.int64()),
            "row": flat.take(pa.array(places + 2)),
        }
    )
