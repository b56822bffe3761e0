"""The streams as Spark's DataFrames: a message's parts and the columns of its row, by Spark's expressions alone."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F


def messages(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """``offset``, ``timestamp`` (of the append), ``id`` and ``row``. What is no message is left out."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    records = read.option("subscribe", topic).option("startingOffsets", "earliest").load()
    parts = F.split(F.col("value").cast("string"), ";", 3)
    taken = records.select("offset", "timestamp", parts.alias("parts")).where(F.size("parts") == 3)
    return taken.select(
        "offset", "timestamp", F.col("parts")[0].cast("bigint").alias("id"), F.col("parts")[2].alias("row")
    )


def field(number: int) -> Column:
    """A column of a sensor's row, as an integer; -1 is the last one, the workplace."""
    fields = F.split("row", "\t")
    return (fields[number] if number >= 0 else F.element_at(fields, number)).cast("int")


def result(*rest: Column) -> Column:
    """A result of one record: its message id, and behind the semicolon its row and what is added to it."""
    return F.concat(F.col("id").cast("string"), F.lit(";"), *rest).alias("value")
