"""Writes epochs to a table until it is done, or dies where it is told to. ``python child.py CONFIG``, as JSON.

``dies``: [epoch, point], with one of the points ``rows`` (in the middle of them), ``commit`` (right before it) and
``done`` (right after it).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator

import pyarrow as pa

from support.sinks.cases import CASES, batches, rows_of
from tailrace.sinks.contract import Owner


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(config: dict[str, object]) -> None:
    case = CASES[config["format"]](config["place"])  # type: ignore[index,arg-type]
    table = case.table(upsert=bool(config["upsert"]))
    epoch_of_death, point = config["dies"] or (-1, "")  # type: ignore[misc]
    for epoch in range(table.open(Owner("query", int(config["run"]))) + 1, int(config["epochs"])):  # type: ignore[call-overload]
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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
