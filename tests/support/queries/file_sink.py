"""An idempotent sink of files: one an epoch, written under another name and renamed, so that a killed writer
leaves no partial file.

A replayed epoch must carry the very rows of the first time; where it does not, that is written into a file ``changed``
which ``written`` looks for.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from tailrace.testing.compare import rows_of

_CHANGED, _SPILLED, PAUSED = "changed", "spilled", "paused"


class FileSink:
    def __init__(self, folder: Path, pause_epoch: int | None = None) -> None:
        self._folder = folder
        self._pause_epoch = pause_epoch
        self.query: Any = None
        """Where it is given, the sink notes whether its state was ever on disk: see ``spilled``."""
        folder.mkdir(exist_ok=True)

    def save(self, batch: DataFrame, epoch: int) -> None:
        self._write(batch.toArrow(), epoch)
        progress = None if self.query is None else self.query.lastProgress
        if progress is not None and progress.state_disk_bytes:
            (self._folder / _SPILLED).touch()
        if epoch == self._pause_epoch:
            (self._folder / PAUSED).touch()
            time.sleep(600)  # durable, in the sink, not in Spark's log: the test kills us here

    def _write(self, table: pa.Table, epoch: int) -> None:
        target = self._folder / f"{epoch:06d}.parquet"
        if target.exists() and _sorted(pq.read_table(target)) != _sorted(table):
            with open(self._folder / _CHANGED, "a") as file:
                file.write(f"epoch {epoch}: {_sorted(pq.read_table(target))} became {_sorted(table)}\n")
        backup = self._folder / f".{epoch:06d}"
        pq.write_table(table, backup)
        backup.rename(target)


def written(folder: Path, epoch: int) -> pa.Table | None:
    """What a sink holds of an epoch; None where it was given nothing."""
    changed = folder / _CHANGED
    assert not changed.exists(), f"{folder.parent.name}: {changed.read_text()[:4000]}"
    path = folder / f"{epoch:06d}.parquet"
    return pq.read_table(path) if path.exists() else None


def spilled(folder: Path) -> bool:
    return (folder / _SPILLED).exists()


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, rows_of(table)))
