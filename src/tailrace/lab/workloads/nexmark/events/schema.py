"""The three kinds of events, and the one wide row that carries any of them.

The wide row is flat: ``number`` (place in the stream), ``event_type``, ``dateTime``, and for each kind its own columns
with the kind's name before them, null in rows of other kinds. Flat, because Spark then reads just the columns that a
query names, and nulls cost it next to nothing; not shared between kinds, because a query about bids would read the long
strings of auctions too. Or an event comes as a text, which engines parse.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

TIME = pa.timestamp("ms", tz="UTC")


class Kind(IntEnum):
    PERSON = 0
    AUCTION = 1
    BID = 2


PERSON_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "emailAddress": pa.string(),
        "creditCard": pa.string(),
        "city": pa.string(),
        "state": pa.string(),
        "dateTime": TIME,
        "extra": pa.string(),
    }
)
AUCTION_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "itemName": pa.string(),
        "description": pa.string(),
        "initialBid": pa.int64(),
        "reserve": pa.int64(),
        "dateTime": TIME,
        "expires": TIME,
        "seller": pa.int64(),
        "category": pa.int64(),
        "extra": pa.string(),
    }
)
BID_SCHEMA = pa.schema(
    {
        "auction": pa.int64(),
        "bidder": pa.int64(),
        "price": pa.int64(),
        "channel": pa.string(),
        "url": pa.string(),
        "dateTime": TIME,
        "extra": pa.string(),
    }
)

SCHEMAS = {Kind.PERSON: PERSON_SCHEMA, Kind.AUCTION: AUCTION_SCHEMA, Kind.BID: BID_SCHEMA}


def wide_name(kind: Kind, column: str) -> str:
    """The wide row's name of a kind's column: ``bid_price``."""
    return column if column == "dateTime" else f"{kind.name.lower()}_{column}"


EVENT_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("event_type", pa.int32()),
        pa.field("dateTime", TIME),
        *(
            pa.field(wide_name(kind, field.name), field.type)
            for kind, schema in SCHEMAS.items()
            for field in schema
            if field.name != "dateTime"
        ),
    ]
)

TEXT = "event"
TEXT_SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "event_type": pa.int32(),
        "dateTime": TIME,
        "auction": pa.int64(),
        "bidder": pa.int64(),
        TEXT: pa.string(),
    }
)
"""An event as a broker has it: a text of JSON, and outside of it the kind, the time, the auction that it is about and
who bids, so that a reader need not parse what it leaves out."""

_SPARK_TYPES = {pa.int64(): "bigint", pa.int32(): "int", pa.string(): "string", TIME: "timestamp"}


def spark_schema(schema: pa.Schema = EVENT_SCHEMA) -> str:
    """The schema as Spark's readers take it."""
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
