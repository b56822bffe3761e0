"""The queries as plain PySpark: what Spark runs, and Tailrace by one line more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tailrace.lab.espbench.queries.input import MF01, MF02, MF03, field, result
from tailrace.lab.espbench.queries.outliers import PERPLEXITY, THRESHOLD, WINDOW, half_up, outlier_probabilities

HIGH_MF01, LOW_MF03 = 14_963, 8_105
_HELD = "messages string"
"""Lines of ``<id>;<row>``: PySpark 4.3 cannot read a state of arrays back."""


def statistics(machine: DataFrame) -> DataFrame:
    """Query 1. ``at`` is the window's end, by which results are put in order."""
    windows = machine.withWatermark("timestamp", "0 seconds").groupBy(F.window("timestamp", "1 second"))
    mf01 = field(MF01)
    found = windows.agg(F.avg(mf01).alias("a"), F.min(mf01).alias("b"), F.max(mf01).alias("c"), F.count("*").alias("n"))
    text = F.concat_ws(",", F.format_string("%.4f", F.col("a")), *(F.col(name).cast("string") for name in "bcn"))
    return found.select(F.col("window.end").alias("at"), text.alias("value"))


def outliers(machine: DataFrame) -> DataFrame:
    """Query 2: each window of 500 offsets is a group of its own, kept until it is whole."""
    windows = machine.select((F.col("offset") / WINDOW).cast("bigint").alias("at"), "id", "row").groupBy("at")
    return windows.applyInPandasWithState(
        _outliers_of_window, "at bigint, value string", _HELD, "append", GroupStateTimeout.NoTimeout
    )


def thresholds(machine: DataFrame) -> DataFrame:
    """Query 3."""
    return machine.where(field(MF01) > HIGH_MF01).select(result(F.col("row")))


def identity(machine: DataFrame) -> DataFrame:
    return machine.select(result(F.col("row")))


def machine_power(machines: Iterable[DataFrame], database: str, low_mf03: int = LOW_MF03) -> DataFrame:
    """Query 4: a batch of rows asks the database once for all its machines, and never keeps an answer."""
    both = reduce(DataFrame.union, machines)
    low = both.where(field(MF03) < low_mf03).select("timestamp", field(-1).alias("workplace"), "id", "row")
    return low.mapInArrow(_outside_of_downtimes(database), "id bigint, row string").select(result(F.col("row")))


def outlier_texts(ids: Any, rows: list[str]) -> list[str]:
    """The results of one window, in the order of message ids."""
    fields = [row.split("\t", MF02 + 1) for row in rows]
    x, y = (pd.Series([each[number] for each in fields]).astype("float64").to_numpy() for number in (MF01, MF02))
    found = outlier_probabilities(x, y, PERPLEXITY)
    chosen = sorted((int(ids[place]), place) for place in range(len(rows)) if found[place] >= THRESHOLD)
    return [f"{number};{rows[place]}\t{half_up(found[place])}" for number, place in chosen]


def _outliers_of_window(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    held = state.get[0].split("\n") if state.exists else []
    for frame in frames:
        held += (frame["id"].astype(str) + ";" + frame["row"]).tolist()
    if len(held) < WINDOW:
        state.update(("\n".join(held),))
        return
    if state.exists:
        state.remove()
    ids, rows = zip(*(message.split(";", 1) for message in held), strict=True)
    texts = outlier_texts(ids, list(rows))
    yield pd.DataFrame({"at": [key[0]] * len(texts), "value": texts})


def _outside_of_downtimes(database: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def reported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        connection = None
        for batch in batches:
            if not batch.num_rows:
                continue
            connection = connection or psycopg.connect(database, autocommit=True, options="-c timezone=UTC")
            places = pc.unique(batch["workplace"]).to_pylist()
            found = connection.execute(DOWNTIMES, [places]).fetchall()
            table = pa.table(
                {
                    "workplace": pa.array([place for place, _, _ in found], pa.int32()),
                    "start": pa.array([start for _, start, _ in found], pa.timestamp("us", "UTC")),
                    "end": pa.array([end for _, _, end in found], pa.timestamp("us", "UTC")),
                }
            )
            place = pc.index_in(batch["workplace"], table["workplace"])
            at = batch["timestamp"].cast(pa.timestamp("us", "UTC"))
            after, before = (pc.less(table[name].take(place), at) for name in ("start", "end"))
            down = pc.fill_null(
                pc.and_(after, pc.invert(pc.or_(before, pc.equal(table["end"].take(place), at)))), False
            )
            kept = batch.filter(pc.invert(down).combine_chunks())
            yield kept.select(["id", "row"])
        if connection is not None:
            connection.close()

    return reported


DOWNTIMES = """
    SELECT DISTINCT ON ("WP_ID") "WP_ID", "WP_DOWNTIME_START" AT TIME ZONE 'UTC', "WP_DOWNTIME_END" AT TIME ZONE 'UTC'
    FROM workplace WHERE "WP_ID" = ANY(%s) ORDER BY "WP_ID", "WP_DT_ID"
"""
