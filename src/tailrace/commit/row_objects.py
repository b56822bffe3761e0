"""Objects of rows that tasks have set aside in an epoch, until it is done: late rows for a sink of their own, and rows
that Spark has made for a table, where they are too many for the driver.

Invariants
- An object belongs to one attempt of one task of one try of an epoch, and is written once, whole. Only those that the
  receipts of winning attempts name are ever read; nobody knows the others, and a sweep deletes them.
- They are no part of the state: no manifest lists them. A replayed epoch reads its rows from the source again and
  writes them anew. So a crash at any point loses nothing, and a start deletes whatever is there.
- A sweep deletes objects of its own run and of epochs that are done. An attempt that lost and still runs may write one
  after that: the next sweep, or the next start, finds it. Those of other runs are left to a start, after its fence: a
  run that was replaced does not know what its successor still reads.

The bytes are those of every state object (docs/reference/log-format.md), with one section.

Threads: any; a store is safe from all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tailrace.env.stores.object_store import ObjectStore, locate
from tailrace.errors import CorruptionError
from tailrace.log import filenames
from tailrace.log.reader import ObjectReader
from tailrace.log.writer import object_parts

EVERY_EPOCH = 2**63 - 1
_SECTION = "rows"


@dataclass(frozen=True)
class RowsAttempt:
    """Whose rows they are. ``attempt`` is Spark's id of the task's attempt, unique over all of an application."""

    run: str
    epoch: int
    try_: int
    partition: int
    attempt: int


@dataclass(frozen=True)
class RowsRef:
    """An object, as a task's receipt names it."""

    name: str
    rows: int
    bytes: int


def write_rows(store: ObjectStore, at: RowsAttempt, piece: int, rows: pa.RecordBatch) -> RowsRef:
    """Durable on return. ``piece``: an attempt numbers what it writes."""
    name = filenames.rows_name(at.epoch, at.run, at.try_, at.partition, at.attempt, piece)
    size = store.put(name, object_parts({"name": name}, [(_SECTION, 0, rows)]))
    return RowsRef(name, len(rows), size)


def read_rows(store: ObjectStore, ref: RowsRef) -> Iterator[pa.RecordBatch]:
    """The rows as they were written, or an error: a part of them would pass for all."""
    try:
        reader = ObjectReader(store, ref.name, ref.bytes)
        if reader.about["name"] != ref.name:
            raise CorruptionError(f"it holds the object {reader.about['name']}")
        yield from reader.section(_SECTION, 0)
    except CorruptionError as error:
        raise CorruptionError(
            f"The rows in {locate(store, ref.name)} are not as they were written: something else deletes or writes "
            "below the state location. Start the query again: it replays the epoch and writes them anew."
        ) from error


def delete_rows(store: ObjectStore, refs: Sequence[RowsRef]) -> None:
    store.delete([ref.name for ref in refs])


def sweep_rows(store: ObjectStore, run: str, through_epoch: int) -> None:
    """Delete every such object that the run has written in this epoch and in earlier ones."""
    found = ((each.name, filenames.rows_of(each.name)) for each in store.list(filenames.ROWS_PREFIX))
    store.delete([name for name, of in found if of is not None and of[1] == run and of[0] <= through_epoch])
