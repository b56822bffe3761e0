"""The contract of tables and topics: an epoch's rows and its number go in by one transaction, or not at all.

- A table keeps, for each query that writes to it, the *entry*: the number of the newest run that has opened it, and the
  newest epoch whose rows it has. Both change by transactions of the table itself.
- ``open`` raises the run in the entry and gives its epoch. From then on no older run can commit anything: it finds a
  greater number than its own, and gets ``FencedError``. Nor can an older run open it any more.
- ``write`` commits the rows together with the epoch. An epoch that the entry has already is not written again: it may
  come from another try or another run, which had the same rows.
- Rows are in the order in which the query gave them. They come once, as batches: a table holds one of them at a time
  where its client library allows it.

Why the entry's own order is enough: an epoch is released when the one before it is durable, and whoever runs it after
that has the same rows. So it does not matter who of two runs writes it, but that it is written once, and in order.

Threads: one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tailrace.errors import FencedError

_LINE_CHARS_MAX = 400


@dataclass(frozen=True)
class Owner:
    """Who writes. ``query``: the same for all runs of a query, and no other's. ``run``: greater with each start."""

    query: str
    run: int


class Unreachable(Exception):
    """May pass: the connection broke, or the server is not ready. The text is for the user and has no secret."""


class Table(Protocol):
    """A table or a topic. After any error it is closed and opened again before it is written to."""

    shown: str
    """What errors call it. No secrets."""

    def open(self, owner: Owner) -> int:
        """Take over. Gives the newest epoch that it has of this query; -1 where it has none.

        Raises ``AnalysisError`` where the rows do not fit, ``Unreachable`` where trying again may help.
        """
        ...

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        """Commit the rows with the epoch. ``before_commit`` is called right before, and may raise.

        Raises ``Unreachable`` where it is not known whether the epoch is there.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; what is not committed is dropped. May be called twice."""
        ...


def one_line(error: Exception) -> str:
    """A client's error in a log or in a message."""
    return " ".join(str(error).split())[:_LINE_CHARS_MAX]


def fenced(shown: str, run: int) -> FencedError:
    return FencedError(
        f"{shown} was taken over by a newer run of this query (its run {run}): this run stops and has published "
        "nothing since. Nothing is lost: the newer run goes on."
    )
