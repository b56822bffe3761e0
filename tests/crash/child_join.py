"""The join that is killed: as ``child_query``, with two streams and an idempotent sink."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from child_query import FileSink

from support.join_case import KINDS, SCHEMAS, join_stream
from support.session import session_builder
from tailrace.testing import ScriptedSource


def main() -> None:
    config = json.loads(sys.argv[1])
    root = Path(config["root"])
    spark = session_builder("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sources = [ScriptedSource(root / name, schema) for name, schema in zip(("left", "right"), SCHEMAS, strict=True)]
    stream = join_stream(sources, spark, KINDS[config["mode"]], "left")
    sink = FileSink(root / "out", config.get("pause_epoch"))
    query = (
        stream.writeStream.foreachBatch(sink.save)
        .option("checkpointLocation", str(root / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
