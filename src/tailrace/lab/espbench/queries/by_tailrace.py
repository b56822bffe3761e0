"""Query 2 in Tailrace's own words: a window by count for each 500 offsets, a function of its rows as Arrow tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.espbench.queries.outliers import WINDOW
from tailrace.lab.espbench.queries.plain import outlier_texts

FORGET = "10 minutes"
"""A window that is full has no more use for its counter."""
_RESULT = "at bigint, value string"


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
