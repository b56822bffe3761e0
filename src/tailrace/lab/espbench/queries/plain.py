"""The queries as plain PySpark: what Spark runs, and Tailrace by one line more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tailrace.lab.espbench.queries.constants import HIGH_MF01, LOW_MF03, MF01, MF03, WINDOW
from tailrace.lab.espbench.queries.downtimes import copies_of
from tailrace.lab.espbench.queries.input import field, result
from tailrace.lab.espbench.queries.outliers import outlier_texts

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


def low_power(machines: Iterable[DataFrame], low_mf03: int = LOW_MF03) -> DataFrame:
    """Query 4's records that are reported, unless their workplace is down."""
    both = reduce(DataFrame.union, machines)
    return both.where(field(MF03) < low_mf03).select("timestamp", field(-1).alias("workplace"), "id", "row")


def machine_power(low: DataFrame, database: str, max_age_s: float = 0) -> DataFrame:
    """Query 4: a batch of rows asks the database once for all its machines, and for none twice within ``max_age_s``."""
    kept = low.mapInArrow(_outside_of_downtimes(database, max_age_s), "id bigint, row string")
    return kept.select(result(F.col("row")))


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


def _outside_of_downtimes(
    database: str, max_age_s: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def reported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            table = copies_of(database, max_age_s).rows(pc.unique(batch["workplace"]).to_pylist())
            place = pc.index_in(batch["workplace"], table["workplace"])
            at = batch["timestamp"].cast(pa.timestamp("us", "UTC"))
            after, before = (pc.less(table[name].take(place), at) for name in ("start", "end"))
            down = pc.fill_null(
                pc.and_(after, pc.invert(pc.or_(before, pc.equal(table["end"].take(place), at)))), False
            )
            kept = batch.filter(pc.invert(down).combine_chunks())
            yield kept.select(["id", "row"])

    return reported
