"""Queries 2 and 4 in Tailrace's own words: windows by count and a function of their rows; a table that is looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.espbench.queries.constants import WINDOW
from tailrace.lab.espbench.queries.input import result
from tailrace.lab.espbench.queries.outliers import outlier_texts

FORGET = "10 minutes"
"""A window that is full has no more use for its counter."""
_DOWNTIMES = """
    SELECT DISTINCT ON ("WP_ID") "WP_ID" AS workplace, "WP_DOWNTIME_START" AT TIME ZONE 'UTC' AS down_start,
        "WP_DOWNTIME_END" AT TIME ZONE 'UTC' AS down_end
    FROM workplace WHERE "WP_ID" IN ({keys}) ORDER BY "WP_ID", "WP_DT_ID"
"""
_RESULT = "at bigint, value string"


def machine_power(low: DataFrame, database: str, max_age_s: float) -> Any:
    """Query 4: the server that owns a machine asks for it once an epoch, or every ``max_age_s``."""
    downtimes = tr.table.dbapi(
        lambda: psycopg.connect(database, autocommit=True, options="-c timezone=UTC"),
        _DOWNTIMES,
        key="workplace",
        schema="down_start timestamp, down_end timestamp",
        paramstyle="format",
        maxAge=f"{max(int(max_age_s * 1000), 1)} milliseconds",
    )
    down = (F.col("down_start") < F.col("timestamp")) & (F.col("timestamp") < F.col("down_end"))
    joined = tr.stream(low).join(downtimes, "workplace", "left_outer")
    return joined.where(~F.coalesce(down, F.lit(False))).select(result(F.col("row")))


def outliers(machine: DataFrame) -> Any:
    """Windows are spread over the servers by their number."""
    placed = machine.select((F.col("offset") / WINDOW).cast("bigint").alias("at"), "id", "row")
    windows = tr.stream(placed).withStateTtl(FORGET, timeMode="processingTime").groupBy("at", tr.count_window(WINDOW))
    return windows.applyInWindow(_outliers_of_windows, _RESULT, columns=["id", "row"], perKey=True)


def _outliers_of_windows(rows: pa.Table) -> pa.Table:
    """``rows``: of several windows, each of them whole."""
    numbers = rows["at"].to_numpy()
    order = np.argsort(numbers, kind="stable")
    found: list[tuple[int, str]] = []
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        window = rows.take(pa.array(places))
        texts = outlier_texts(window["id"].to_pylist(), window["row"].to_pylist())
        found += [(int(numbers[places[0]]), text) for text in texts]
    return pa.table({"at": [at for at, _ in found], "value": [text for _, text in found], "window": [0] * len(found)})
