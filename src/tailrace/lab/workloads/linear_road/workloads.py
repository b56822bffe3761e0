"""LR2 and LR4 as workloads ``lr2`` and ``lr4``.

LR2 is the stream joined with itself: every report with the reports of its vehicle in the 30 seconds up to it, itself
among them, once for each. LR4 counts the reports of each segment in windows of 20 seconds that move by 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.registry import Parameter, Value, register
from tailrace.lab.workloads.linear_road.reports import LAYOUT, SEGMENT_FEET, Reports
from tailrace.lab.workloads.traffic.workload import CLOSES_BY, TIME, Family, StreamQuery, delay, workload

_RANGE_S = 30
_WINDOW_S, _SLIDE_S = 20, 5
_WINDOW, _SLIDE = f"{_WINDOW_S} seconds", f"{_SLIDE_S} seconds"
_EARLIER = "seen"
_SEGMENT = ("highway", "direction", "segment")

REPORTS = Family(
    layout=LAYOUT,
    source=lambda values, seed: Reports(int(values["highways"]), seed),
    parameters={"highways": Parameter(1, "expressways, of 100 segments in each direction")},
    fields=("vehicle", "speed", "highway", "lane", "direction", "position"),
)


def _segments(reports: DataFrame) -> DataFrame:
    """SegSpeedStr: the segment instead of the position."""
    return reports.withColumn("segment", F.expr(f"position div {SEGMENT_FEET}")).drop("position")


def _lr2_tailrace(reports: DataFrame, values: Mapping[str, Value]) -> Any:
    late = tr.stream(_segments(reports)).withWatermark(TIME, delay(values))
    earlier = reports.select("vehicle", F.col(TIME).alias(_EARLIER))
    # Both bounds are inclusive, and the range is open where it begins.
    return late.join(
        tr.stream(earlier).withWatermark(_EARLIER, delay(values)),
        "vehicle",
        within=(f"{1 - _RANGE_S * 1_000_000} microseconds", "0 seconds"),
    )


def _lr2_spark(reports: DataFrame, values: Mapping[str, Value]) -> Any:
    late = _segments(reports).withWatermark(TIME, delay(values))
    earlier = reports.select(F.col("vehicle").alias("same"), F.col(TIME).alias(_EARLIER))
    met = late.join(
        earlier.withWatermark(_EARLIER, delay(values)),
        F.expr(f"vehicle = same AND {_EARLIER} > {TIME} - INTERVAL {_RANGE_S} SECONDS AND {_EARLIER} <= {TIME}"),
    )
    return met.drop("same")


def _lr4_tailrace(reports: DataFrame, values: Mapping[str, Value]) -> Any:
    counted = tr.stream(_segments(reports).select(TIME, "vehicle", *_SEGMENT)).withWatermark(TIME, delay(values))
    return counted.groupBy(tr.window(TIME, _WINDOW, _SLIDE), *_SEGMENT).agg(tr.count("vehicle").alias("reports"))


def _lr4_spark(reports: DataFrame, values: Mapping[str, Value]) -> Any:
    counted = _segments(reports).withWatermark(TIME, delay(values))
    return counted.groupBy(F.window(TIME, _WINDOW, _SLIDE), *_SEGMENT).agg(F.count("vehicle").alias("reports"))


LR2 = StreamQuery(
    name="lr2",
    description="Linear Road 2: reports joined with those of the same vehicle in the 30 seconds before",
    family=REPORTS,
    tailrace=_lr2_tailrace,
    spark=_lr2_spark,
    sql=f"""
        SELECT l.t AS {TIME}, l.vehicle, l.speed, l.highway, l.lane, l.direction,
               l.position // {SEGMENT_FEET} AS segment, a.t AS {_EARLIER}
        FROM records l JOIN records a ON a.vehicle = l.vehicle AND a.t > l.t - {_RANGE_S} AND a.t <= l.t""",
    windowed=False,
)
LR4 = StreamQuery(
    name="lr4",
    description=f"Linear Road 4: reports of each segment in every {_WINDOW}, moving by {_SLIDE}",
    family=REPORTS,
    tailrace=_lr4_tailrace,
    spark=_lr4_spark,
    sql=f"""
        SELECT t - t % {_SLIDE_S} + {_SLIDE_S} * k AS {CLOSES_BY}, highway, direction,
               position // {SEGMENT_FEET} AS segment, count(*) AS reports
        FROM records, range(1, {_WINDOW_S // _SLIDE_S + 1}) AS windows(k) GROUP BY ALL""",
)
register(workload(LR2), workload(LR4))
