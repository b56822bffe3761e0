"""A query of many small epochs, which writes down what it holds every so many of them."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame

import tailrace as tr
from support.processes import servers_among
from support.session import session_builder


def held(root: Path) -> dict[str, int]:
    """Files and objects, and what processes of this query hold."""
    me = psutil.Process()
    (server,) = servers_among(me.children(recursive=True))
    return {
        "objects": len(sizes(root / "state")),
        "object bytes": sum(sizes(root / "state")),
        "local files": len(sizes(root / "local")),
        "spark files": len(sizes(root / "check")),
        "server memory": server.memory_info().rss,
        "server files": server.num_fds(),
        "server threads": server.num_threads(),
        "driver memory": me.memory_info().rss,
        "driver files": me.num_fds(),
        "driver threads": me.num_threads(),
    }


def sizes(folder: Path) -> list[int]:
    """Of every file below the folder that is not just going."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found.append(path.stat().st_size)
    return found


def main() -> None:
    config: dict[str, Any] = json.loads(sys.argv[1])
    root, epochs, every = Path(config["root"]), config["epochs"], config["every"]
    spark = session_builder("local[2]").config("spark.sql.streaming.minBatchesToRetain", "10").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", config["rows"])
        .option("advanceMillisPerBatch", 1000)
        .load()
        .selectExpr(f"value % {config['keys']} as key", "value", "timestamp")
    )
    seen: dict[int, int] = {}
    with open(root / "held.jsonl", "w", encoding="utf-8") as out:

        def save(batch: DataFrame, epoch: int) -> None:
            seen[epoch] = sum(batch.toArrow().column("n").to_pylist())
            if epoch % every == 0:
                print(json.dumps({"epoch": epoch, **held(root)}), file=out, flush=True)

        query = (
            tr.stream(rows)
            .withWatermark("timestamp", "5 seconds")
            .groupBy(tr.window("timestamp", "10 seconds"), "key")
            .agg(tr.count().alias("n"), tr.sum("value").alias("total"))
            .writeStream.outputMode("append")
            .foreachBatch(save)
            .option("checkpointLocation", str(root / "check"))
            .option("stateLocation", f"shaped:latency_ms=1:{root / 'state'}")
            .option("localLocation", str(root / "local"))
            .option("commit", config["commit"])
            .start()
        )
        while query.isActive and len(seen) < epochs:
            query.awaitTermination(0.2)
        query.stop()
        error = query.exception()
    assert error is None, error
    (root / "end.json").write_text(json.dumps({"epochs": len(seen), "rows": sum(seen.values()), "pid": os.getpid()}))
    spark.stop()


if __name__ == "__main__":
    main()
