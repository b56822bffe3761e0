"""Events as texts of JSON: one object an event, its own kind's columns under their wide names, nulls left out.

Columns are put together as columns: no generated string holds a character that JSON would escape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lab.workloads.nexmark.events.schema import SCHEMAS, TEXT, TEXT_SCHEMA, Kind, wide_name

ALWAYS = ("number", "event_type", "dateTime")
"""Columns that rows of any kind have."""


def json_texts(batch: pa.RecordBatch) -> pa.Array:
    """A text for each wide row."""
    kinds = batch["event_type"].to_numpy()
    texts = []
    order = np.empty(batch.num_rows, np.int64)
    done = 0
    for kind in Kind:
        places = np.flatnonzero(kinds == kind)
        texts.append(_objects(kind, batch.take(pa.array(places))))
        order[places] = np.arange(done, done + len(places))
        done += len(places)
    return pa.concat_arrays(texts).take(pa.array(order))


def with_texts(events: pa.Table) -> pa.Table:
    """The wide rows, and beside them what ``TEXT_SCHEMA`` has: the text of each, and its keys outside of it."""
    texts = pa.chunked_array([json_texts(batch) for batch in events.to_batches()], pa.string())
    is_bid = pc.equal(events["event_type"], int(Kind.BID))
    nothing = pa.nulls(events.num_rows, pa.int64())
    known = {name: events[name] if name in events.column_names else nothing for name in _KEYS}
    beside = {
        "auction": pc.if_else(is_bid, known["bid_auction"], known["auction_id"]),
        "bidder": known["bid_bidder"],
        TEXT: texts,
    }
    for field in TEXT_SCHEMA:
        if field.name in beside:
            events = events.append_column(field, beside[field.name])
    return events


_KEYS = tuple(
    wide_name(kind, name) for kind, name in ((Kind.BID, "auction"), (Kind.BID, "bidder"), (Kind.AUCTION, "id"))
)


def _objects(kind: Kind, rows: pa.RecordBatch) -> pa.Array:
    own = {*ALWAYS, *(wide_name(kind, name) for name in SCHEMAS[kind].names)}
    parts: list[Any] = []
    before = "{"
    for field in rows.schema:
        if field.name not in own:
            continue
        quote = "" if pa.types.is_integer(field.type) else '"'
        parts += [f'{before}"{field.name}":{quote}', rows[field.name].cast(pa.string())]
        before = f"{quote},"
    return pc.binary_join_element_wise(*parts, before[:-1] + "}", "")
