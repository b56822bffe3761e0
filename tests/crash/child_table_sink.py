"""A query with a sink that is a table or a topic, in a process of its own: a whole driver.

``step``: of the first epoch that it writes, ``begin``, ``rows`` (in the middle of them), ``commit`` (right before it)
or ``done`` (right after it). ``act``: it dies there, or stands still until it is told to go on. It keeps no lock, as
one on another machine would not.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from support.processes import NoLock
from support.queries.table_queries import writer_of
from support.session import session_builder
from support.sinks.cases import CASES
from tailrace.commit import controller as controllers
from tailrace.sinks.contract import Owner, Table
from tailrace.spark.query import start
from tailrace.spark.sinks import tables


class Interrupted:
    """A table at which something happens, once."""

    def __init__(self, table: Table, step: str, act: Callable[[], None]) -> None:
        self._table, self._step, self._act = table, step, act
        self.shown = table.shown

    def open(self, owner: Owner) -> int:
        return self._table.open(owner)

    def close(self) -> None:
        self._table.close()

    def write(self, epoch: int, rows: Iterator[pa.RecordBatch], before_commit: Callable[[], None]) -> None:
        def passing() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                half = len(batch) // 2
                yield batch.slice(0, half)
                self._at("rows")
                yield batch.slice(half)

        def about_to_commit() -> None:
            before_commit()
            self._at("commit")

        self._at("begin")
        self._table.write(epoch, passing(), about_to_commit)
        self._at("done")

    def _at(self, step: str) -> None:
        if step == self._step:
            self._step = ""
            self._act()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def main() -> None:
    config = json.loads(sys.argv[1])
    root = Path(config["root"])

    def stand_still() -> None:
        (root / "frozen").touch()
        os.kill(os.getpid(), signal.SIGSTOP)

    if "step" in config:
        act = {"die": die, "stand still": stand_still}[config["act"]]
        table_of = tables.table_of
        tables.table_of = lambda *given: Interrupted(table_of(*given), config["step"], act)  # type: ignore[assignment]
    controllers.QueryLock = start.QueryLock = NoLock  # type: ignore[misc,assignment]
    spark = session_builder("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    case = CASES[config["format"]](config["place"])
    query = writer_of(spark, root, config["kind"], case).trigger(availableNow=True).start()
    query.awaitTermination()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
