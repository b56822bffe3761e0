"""The query that is killed: run by the tests as a process of its own, again and again until it ends by itself.

Its sink is idempotent: one file an epoch, written aside and renamed. A replayed epoch must carry the very rows of the
first time; where it does not, that is written into a file ``changed`` which the test looks for.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from support.engine import tailrace_stream
from support.kill_case import SCHEMA, question
from support.session import session_builder
from tailrace.testing import ScriptedSource
from tailrace.testing.compare import rows_of


class FileSink:
    def __init__(self, folder: Path, pause_epoch: int | None) -> None:
        self._folder = folder
        self._pause_epoch = pause_epoch
        folder.mkdir(exist_ok=True)

    def save(self, batch: DataFrame, epoch: int) -> None:
        self._write(batch.toArrow(), epoch)
        if epoch == self._pause_epoch:
            (self._folder / "paused").touch()
            time.sleep(600)  # durable, in the sink, not in Spark's log: the test kills us here

    def _write(self, table: pa.Table, epoch: int) -> None:
        target = self._folder / f"{epoch:06d}.parquet"
        if target.exists() and _sorted(pq.read_table(target)) != _sorted(table):
            with open(self._folder / "changed", "a") as file:
                file.write(f"epoch {epoch}: {_sorted(pq.read_table(target))} became {_sorted(table)}\n")
        aside = self._folder / f".{epoch:06d}"
        pq.write_table(table, aside)
        aside.rename(target)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, rows_of(table)))


def main() -> None:
    config = json.loads(sys.argv[1])
    root = Path(config["root"])
    spark = session_builder(config.get("master", "local[2]")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    asked = question(config["mode"])
    stream = tailrace_stream(ScriptedSource(root / "in", SCHEMA).stream(spark), asked)
    sink = FileSink(root / "out", config.get("pause_epoch"))
    writer = stream.writeStream.outputMode(asked.output_mode).foreachBatch(sink.save)
    if config["mode"] == "late":
        writer = writer.lateRows(FileSink(root / "late", None).save)
    for name, value in config.get("options", {}).items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(root / "check")).trigger(availableNow=True).start()
    query.awaitTermination()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
