"""The queries on Flink: SQL, and Python functions of whole batches where SQL has no words for what is asked.

Runs in an environment of its own, without PySpark: see ``systems/flink_environment.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyflink.table import DataTypes
from pyflink.table.expressions import call, col, row_interval
from pyflink.table.udf import ScalarFunction, udaf, udf
from pyflink.table.window import Tumble

from tailrace.lab.espbench.queries.constants import HIGH_MF01, MF01, MF03, WINDOW
from tailrace.lab.espbench.queries.outliers import outlier_texts
from tailrace.lab.espbench.queries.production import Production

OUTPUT, INPUT = "results", "messages"
_LINES = "lines"
_ROW = "SPLIT_INDEX(`value`, ';', 2)"
_RESULT = f"CONCAT(SPLIT_INDEX(`value`, ';', 0), ';', {_ROW})"


def _field(number: int) -> str:
    return f"CAST(SPLIT_INDEX({_ROW}, CHR(9), {number}) AS INT)"


WORKPLACE = "CAST(REGEXP_EXTRACT(`value`, '([0-9]+)$', 1) AS INT)"
"""A row's last column."""

_STATISTICS = f"""
    SELECT CONCAT_WS(',', CAST(ROUND(AVG(CAST(mf01 AS DOUBLE)), 4) AS STRING),
        CAST(MIN(mf01) AS STRING), CAST(MAX(mf01) AS STRING), CAST(COUNT(*) AS STRING))
    FROM TABLE(TUMBLE((SELECT ts, {_field(MF01)} AS mf01 FROM {INPUT}_0), DESCRIPTOR(ts), INTERVAL '1' SECOND))
    GROUP BY window_start, window_end
"""
_THRESHOLDS = f"SELECT {_RESULT} FROM {INPUT}_0 WHERE {_field(MF01)} > {HIGH_MF01}"
_IDENTITY = f"SELECT {_RESULT} FROM {INPUT}_0"
_OUTLIERS = f"SELECT line FROM {_LINES} CROSS JOIN UNNEST(SPLIT(found, U&'\\000A')) AS parts (line) WHERE line <> ''"
_UPDATES = f"SELECT updated({_ROW}) FROM {INPUT}_0"
_WORKPLACES = (
    '(SELECT "WP_ID" AS wp_id, "WP_DOWNTIME_START" AS down_start, "WP_DOWNTIME_END" AS down_end FROM workplace) AS w'
)
"""The connector does not quote names, and those of the benchmark are in capitals."""
_MACHINE_POWER = """
    SELECT CONCAT(SPLIT_INDEX(low.`value`, ';', 0), ';', SPLIT_INDEX(low.`value`, ';', 2))
    FROM ({low}) AS low
    LEFT JOIN workplace FOR SYSTEM_TIME AS OF low.proc AS w ON w.wp_id = low.place
    WHERE w.wp_id IS NULL OR NOT (w.down_start < low.moment AND low.moment < w.down_end)
"""


def source(number: int, bootstrap: str, topic: str, with_watermark: bool) -> str:
    """A topic, from its first record on. A second is over when a record of a later millisecond is there."""
    watermark = ", WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND" if with_watermark else ""
    return f"""
        CREATE TABLE {INPUT}_{number} (
            `value` STRING,
            ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
            proc AS PROCTIME(){watermark}
        ) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}',
            'properties.group.id' = '{topic}-flink', 'scan.startup.mode' = 'earliest-offset', 'format' = 'raw'
        )
    """


def sink(bootstrap: str, topic: str) -> str:
    """Transactions, each as long as a checkpoint's interval."""
    return f"""
        CREATE TABLE {OUTPUT} (`value` STRING) WITH (
            'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{bootstrap}',
            'format' = 'raw', 'properties.linger.ms' = '0', 'properties.transaction.timeout.ms' = '600000',
            'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{topic}'
        )
    """


def workplaces(jdbc_url: str, user: str, password: str, max_age: str) -> str:
    """``max_age``: of a copy of a row, as ``10 s``; empty: each record asks the database."""
    cache = f"'PARTIAL', 'lookup.partial-cache.expire-after-write' = '{max_age}'" if max_age else "'NONE'"
    secret = f", 'password' = '{password}'" if password else ""
    return f"""
        CREATE TABLE workplace (wp_id INT, down_start TIMESTAMP(6), down_end TIMESTAMP(6)) WITH (
            'connector' = 'jdbc', 'url' = '{jdbc_url}', 'username' = '{user}'{secret}, 'table-name' = '{_WORKPLACES}',
            'lookup.cache' = {cache}
        )
    """


def query(tables: Any, key: str, database: str, settings: dict[str, Any], inputs: Sequence[str]) -> str:
    """A SELECT of what goes into the sink; functions and views that it needs are made."""
    if key == "q2":
        _windows(tables)
        return _OUTLIERS
    if key == "q4":
        low = " UNION ALL ".join(
            f"SELECT `value`, proc, CAST(ts AS TIMESTAMP(3)) AS moment, {WORKPLACE} AS place FROM {INPUT}_{number} "
            f"WHERE {_field(MF03)} < {settings['low_mf03']}"
            for number in range(len(inputs))
        )
        return _MACHINE_POWER.format(low=low)
    if key == "q5":
        made = udf(_Updates(database, settings["set_wise"]), result_type=DataTypes.INT(), func_type="pandas")
        tables.create_temporary_system_function("updated", made)
        return _UPDATES
    return {"q1": _STATISTICS, "q3": _THRESHOLDS, "identity": _IDENTITY}[key]


def _windows(tables: Any) -> None:
    """Windows by count hold whole rows; a function of columns makes one text of each."""
    tables.execute_sql(
        f"CREATE VIEW numbered AS SELECT CAST(SPLIT_INDEX(`value`, ';', 0) AS BIGINT) AS id, {_ROW} AS content, proc "
        f"FROM {INPUT}_0"
    )
    found = udaf(_outliers_of_window, result_type=DataTypes.STRING(), func_type="pandas")
    tables.create_temporary_system_function("outliers", found)
    windows = tables.from_path("numbered").window(Tumble.over(row_interval(WINDOW)).on(col("proc")).alias("w"))
    lines = windows.group_by(col("w")).select(call("outliers", col("id"), col("content")).alias("found"))
    tables.create_temporary_view(_LINES, lines)


def _outliers_of_window(ids: pd.Series, rows: pd.Series) -> str:
    return "\n".join(outlier_texts(ids.tolist(), rows.tolist()))


class _Updates(ScalarFunction):
    """Sets the columns of a batch of records; its connection is the worker's."""

    def __init__(self, database: str, set_wise: bool) -> None:
        self._given = database, set_wise

    def open(self, context: Any) -> None:
        self._production = Production(*self._given)

    def eval(self, rows: pd.Series) -> pd.Series:
        self._production.update(pa.array(rows, pa.string()))
        return pd.Series([1] * len(rows), dtype="int32")

    def close(self) -> None:
        self._production.close()
