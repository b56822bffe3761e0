"""Writes epochs to a table until it is done, or dies where it is told to: a process for each line of standard input.

A line is a JSON object. ``dies``: [epoch, point], with one of the points ``rows`` (in the middle of them), ``commit``
(right before it) and ``done`` (right after it). Prints each process' exit code.

Each is a fork of this one, which has imported the clients and started none of them: that would cost seconds a process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from support.sinks.cases import CASES, batches, rows_of
from tailrace.sinks.contract import Owner


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(config: dict[str, Any]) -> None:
    case = CASES[config["format"]](config["place"])
    table = case.table(upsert=config["upsert"])
    epoch_of_death, point = config["dies"] or (-1, "")
    for epoch in range(table.open(Owner("query", config["run"])) + 1, config["epochs"]):
        dying = epoch == epoch_of_death

        def rows(epoch: int = epoch, dying: bool = dying) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(batches(rows_of(epoch))):
                if number == 1 and dying and point == "rows":
                    die()
                yield batch

        table.write(epoch, rows(), die if dying and point == "commit" else lambda: None)
        if dying and point == "done":
            die()
    table.close()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                run(json.loads(line))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
