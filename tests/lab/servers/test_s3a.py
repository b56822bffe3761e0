"""Spark's own checkpoint in the lab's S3 server, through the proxy: what ``tailrace bench commit`` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.lab.servers.s3 import S3Server
from tailrace.lab.servers.shaping_proxy import ShapingProxy

PROGRAM = """
import json, sys
from pathlib import Path
from tailrace.lab.engines import session
from tailrace.lab.servers import s3a

work, endpoint, checkpoint = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
rocksdb = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
extra = {**s3a.s3a_confs(endpoint, "us-east-1", work), **rocksdb}
spark = session.start_session("s3a", work=work, heap="1g", extra=extra, log=work / "log.txt")
totals = []
for _ in range(2):  # the second run goes on from the checkpoint
    rows = spark.readStream.option("maxFilesPerTrigger", 1).schema("k bigint").json(str(work / "in"))
    counted = rows.groupBy("k").count()
    def save(batch, epoch):
        totals.append([epoch, sorted([row.k, row["count"]] for row in batch.collect())])
    query = counted.writeStream.outputMode("complete").foreachBatch(save)
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    (work / "in" / "more.json").write_text('{"k": 1}\\n')
spark.stop()
print(json.dumps(totals))
"""


@pytest.mark.long
def test_spark_keeps_a_checkpoint_in_s3_and_goes_on_from_it(tmp_path: Path, s3: S3Server, proxy: ShapingProxy) -> None:
    (tmp_path / "in").mkdir()
    for each in range(2):
        (tmp_path / "in" / f"{each}.json").write_text('{"k": 1}\n{"k": 2}\n')
    before = proxy.counts()["requests"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), proxy.endpoint, s3.uri("spark", "s3a")],
        env={**os.environ, **s3.environment(proxy.endpoint)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    log = (tmp_path / "log.txt").read_text()
    assert ended.returncode == 0, ended.stderr[-3000:] + log[-3000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [
        [0, [[1, 1], [2, 1]]],
        [1, [[1, 2], [2, 2]]],
        [2, [[1, 3], [2, 2]]],
    ]
    assert proxy.counts()["requests"] > before
    assert s3.secret_key not in log + ended.stdout + ended.stderr
