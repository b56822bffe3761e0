"""The only module of ``lab/`` that touches PySpark's underscored API. The lab may import public names of Tailrace only,
as a user's program does, so it cannot share ``spark/private.py``.

Spark promises none of this. The tests of ``gadget``'s Spark stores and of the engines run each function on a live
session.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def running_jvm() -> Any:
    """The JVM of this process's Spark: a listener is made in it before there is a session to ask."""
    return SparkContext._jvm


def jvm_of(spark: SparkSession) -> Any:
    """``gadget`` replays traces on Spark's own state stores, which PySpark does not offer."""
    return spark._jvm


def hadoop_configuration(spark: SparkSession) -> Any:
    """A copy, for a state store's provider."""
    jsc: Any = spark._jsc
    return jvm_of(spark).org.apache.hadoop.conf.Configuration(jsc.hadoopConfiguration())


def session_conf(spark: SparkSession) -> Any:
    """The ``SQLConf`` object, from which a state store reads its settings."""
    session: Any = spark._jsparkSession
    return session.sessionState().conf()


def object_array(spark: SparkSession, *values: Any) -> Any:
    """An ``Object[]``, as Java's reflection takes arguments."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(jvm_of(spark).Object, len(values))
    for number, value in enumerate(values):
        array[number] = value
    return array
