"""The workload ``ysb``: views of each campaign's ads in windows of ten seconds.

Tailrace looks campaigns up in a lookup table; plain Spark in a function of a column that asks Redis for the distinct
ads of each Arrow batch. What is right says DuckDB, from the events and from which ads there are, without any Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.registry import OURS, Files, Settings, Value, Workload, register
from tailrace.lab.workloads.ysb import ads
from tailrace.lab.workloads.ysb.campaigns import address, campaigns_of, serving

_FIELDS = "ad_id string, event_type string, event_time string"
_TIME = "ts"
_WINDOW = f"{ads.WINDOW_S} seconds"
_SQL = f"""
SELECT campaign_id, ms - ms % {ads.WINDOW_S * 1000} + {ads.WINDOW_S * 1000} AS until_ms, count(*) AS views
FROM (SELECT value->>'ad_id' AS ad_id, CAST(value->>'event_time' AS BIGINT) AS ms FROM events
      WHERE value->>'event_type' = 'view') JOIN campaigns USING (ad_id)
GROUP BY ALL
"""


def parsed(events: DataFrame) -> DataFrame:
    event = F.from_json(ads.VALUE, _FIELDS)
    return events.select(event.alias("event")).select("event.*")


def views(events: DataFrame) -> DataFrame:
    return events.where(F.col("event_type") == ads.TYPES[0])


def asked(events: DataFrame) -> DataFrame:
    time = F.timestamp_millis(F.col("event_time").cast("bigint"))
    return events.select("ad_id", time.alias(_TIME))


def _tailrace(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    # The table does not change, and the benchmark's own programs keep what it once said, too.
    campaigns = tr.table.redis(address(), "ad_id", "campaign_id string", maxAge=None)
    stream = tr.stream(feeds[ads.FEED]).transform(parsed).transform(views).transform(asked)
    met = stream.withWatermark(_TIME, "0 seconds").join(campaigns, "ad_id")
    counted = met.groupBy(tr.window(_TIME, _WINDOW), "campaign_id").agg(tr.count().alias("views"))
    return counted.writeStream.outputMode("append")


def _spark(feeds: Mapping[str, DataFrame], values: Mapping[str, Value]) -> Any:
    url = address()

    def campaigns(column: pd.Series) -> pd.Series:
        return pd.Series(campaigns_of(url, column.to_numpy()))

    as_udf: Any = F.pandas_udf
    lookup = as_udf(campaigns, "string")
    seen = feeds[ads.FEED].transform(parsed).transform(views).transform(asked).withWatermark(_TIME, "0 seconds")
    met = seen.withColumn("campaign_id", lookup("ad_id")).where(F.col("campaign_id").isNotNull())
    window: Column = F.window(_TIME, _WINDOW)
    counted = met.groupBy(window, "campaign_id").agg(F.count(F.lit(1)).alias("views"))
    return counted.writeStream.outputMode("append")


def _oracle(files: Files, settings: Settings) -> pa.Table:
    with duckdb.connect() as database:
        database.register("texts", pads.dataset([str(path) for path in files[ads.FEED]], format="parquet"))
        database.execute("CREATE TEMP VIEW events AS SELECT value::JSON AS value FROM texts")
        database.register("campaigns", ads.table(settings.values))
        rows = database.sql(_SQL).to_arrow_table()
        newest = database.sql(
            "SELECT max(CAST(value->>'event_time' AS BIGINT)) FROM events WHERE value->>'event_type' = 'view'"
        ).fetchone()
    assert newest is not None
    return rows.filter(pc.less_equal(rows["until_ms"], newest[0] or 0))


def _final(rows: pa.Table) -> pa.Table:
    until = pc.struct_field(rows["window"], "end").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return pa.table({"campaign_id": rows["campaign_id"], "until_ms": until, "views": rows["views"]})


YSB = Workload(
    name="ysb",
    description="Yahoo Streaming Benchmark: views of campaigns in windows of 10 seconds, ads looked up in Redis",
    feeds={ads.FEED: ads.SCHEMA},
    inputs=ads.inputs,
    queries={OURS: _tailrace, "spark-rocksdb": _spark, "spark-memory": _spark},
    oracle=_oracle,
    final=_final,
    parameters=ads.PARAMETERS,
    service=serving,
    rows=200_000,
)
register(YSB)
