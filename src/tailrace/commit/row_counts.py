"""How many rows and tasks the newest epochs had, recorded once they were ingested, so that a replay can be compared.

An epoch whose manifest is durable has its count there. In the asynchronous modes an epoch may be in its sink, and in
Spark's log, without one. Its count then is in one small object of the run, which every epoch replaces, behind its back:
nobody waits for it, and where it was lost with a crash nothing is compared.

Only an epoch that Spark replays with the same offsets may be compared: the first one after the recovery point. One
behind it is planned afresh, with other rows. So a start keeps the count of that one, and drops all others before Spark
runs. The object is named by its run's fence, and the newest one counts: a run that was replaced cannot change what its
successor compares with.

Functions here hold no state: safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.format import damaged, decode_entry, encode_entry
from tailrace.log.typed_json import MalformedError, item

_KIND = "row_counts"


class RowCount(NamedTuple):
    """Rows of an epoch, and the tasks that have read them."""

    rows: int
    tasks: int


def take_counts(store: ObjectStore, fence: int, kept: Callable[[int], bool]) -> dict[int, RowCount]:
    """By epoch what the newest run has counted, of epochs that are ``kept``: from now on the counts of this run."""
    names = [each.name for each in store.list(filenames.COUNTS_PREFIX)]
    counts = {epoch: count for epoch, count in read_counts(store, names).items() if kept(epoch)}
    put_counts(store, fence, counts)
    store.delete([name for name in names if name < filenames.counts_name(fence)])
    return counts


def read_counts(store: ObjectStore, names: Sequence[str]) -> dict[int, RowCount]:
    """By epoch what the newest run has counted, of the runs whose records have these names."""
    if not names:
        return {}
    name = max(names)
    where = locate(store, name)
    try:
        kind, body = decode_entry(store.get(name), where)
    except FileNotFoundError:  # deleted by a newer run
        return {}
    if kind != _KIND:
        raise CorruptionError(damaged(where, "it is not the record of how many rows epochs had"))
    try:
        counts = item(body, "counts", dict[str, RowCount])
        return {int(epoch): count for epoch, count in counts.items()}
    except ValueError as error:
        reason = str(error) if isinstance(error, MalformedError) else "an epoch is no number"
        raise CorruptionError(damaged(where, reason)) from None


def put_counts(store: ObjectStore, fence: int, counts: Mapping[int, RowCount]) -> None:
    data = encode_entry(_KIND, {"counts": {str(epoch): [*count] for epoch, count in counts.items()}})
    store.put(filenames.counts_name(fence), [data])
