"""Plain queries of a whole session: ``tailrace.enable``, and SQL text.

A session that is enabled is known by a setting of its own, since Python has several objects
for one session. PySpark's property is replaced once in a process and asks each DataFrame's session.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tailrace.spark.expressions.catalyst import replace_write_stream
from tailrace.spark.plan_reader.writer import PlainWriter, writeStream

_ENABLED = "spark.tailrace.enabled"


def enable(spark: SparkSession) -> None:
    """From now on every ``df.writeStream`` of the session is ``tailrace.writeStream(df)``, until :func:`disable`.

    >>> tr.enable(spark)
    >>> tr.disable(spark)
    """
    spark.conf.set(_ENABLED, "true")
    replace_write_stream(_writer)


def disable(spark: SparkSession) -> None:
    """``df.writeStream`` is Spark's own again in this session."""
    spark.conf.unset(_ENABLED)


def sql(spark: SparkSession, text: str, fallback: bool = True) -> PlainWriter:
    """``tailrace.writeStream`` of a query in SQL over views of streams.

    >>> spark.readStream.schema("ts timestamp, channel string").parquet("/data/bids").createOrReplaceTempView("seen")
    >>> writer = tr.sql(spark, "SELECT channel, count(*) AS n FROM seen GROUP BY channel").outputMode("update")
    """
    return writeStream(spark.sql(text), fallback)


def _writer(frame: DataFrame) -> PlainWriter | None:
    """None: the session is not enabled."""
    if frame.sparkSession.conf.get(_ENABLED, "false") != "true":
        return None
    return writeStream(frame)
