"""How many rows the newest epochs had, recorded as soon as they were ingested, so that a replay can be compared.

An epoch whose manifest is durable has its count there. In the asynchronous modes an epoch may be in its sink, and in
Spark's log, without one. Its count then is in one small object, which every epoch replaces, behind its back: nobody
waits for it, and where it was lost with a crash nothing is compared.

Only an epoch that Spark replays with the same offsets may be compared: the first one after a landing. One behind it is
planned afresh, with other rows. So a start keeps the count of that one, and drops all others before Spark runs.

Functions here hold no state: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.env.store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry

_KIND = "counts"


def read_counts(store: ObjectStore) -> dict[int, int]:
    """Rows by epoch."""
    where = locate(store, filenames.COUNTS_NAME)
    try:
        kind, body = decode_entry(store.get(filenames.COUNTS_NAME), where)
    except FileNotFoundError:
        return {}
    if kind != _KIND:
        raise CorruptionError(damaged(where, "it is not the record of how many rows epochs had"))
    return {int(epoch): int(rows) for epoch, rows in body["rows"].items()}


def put_counts(store: ObjectStore, counts: Mapping[int, int]) -> None:
    store.put(filenames.COUNTS_NAME, [encode_entry(_KIND, {"rows": {str(epoch): n for epoch, n in counts.items()}})])
