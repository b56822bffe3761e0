"""CM1 and CM2 as workloads ``cm1`` and ``cm2``.

CM1 sums up what each category of tasks asks for, in windows of 60 seconds that move by 10, in the order of the sums.
CM2 takes the mean of what the scheduled tasks of each job ask for, in windows of 30 seconds that move by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.lab.registry import Parameter, Value, register
from tailrace.lab.workloads.cluster_monitoring.tasks import CPU_UNIT, LAYOUT, SCHEDULE, Tasks
from tailrace.lab.workloads.traffic.workload import CLOSES_BY, TIME, Family, StreamQuery, delay, workload

_CM1_S, _CM1_SLIDE_S = 60, 10
_CM2_S, _CM2_SLIDE_S = 30, 1

TASKS = Family(
    layout=LAYOUT,
    source=lambda values, seed: Tasks(int(values["jobs"]), seed),
    parameters={"jobs": Parameter(240, "different jobs, a few of which have most of the tasks")},
    fields=("job", "type", "category", "cpu"),
)


def _asked(tasks: DataFrame, *keys: str) -> DataFrame:
    return tasks.select(TIME, *keys, (F.col("cpu") * CPU_UNIT).alias("cpu"))


def _scheduled(tasks: DataFrame) -> DataFrame:
    return _asked(tasks.where(F.col("type") == SCHEDULE), "job")


def _seconds(seconds: int) -> str:
    return f"{seconds} seconds"


def _cm1_tailrace(tasks: DataFrame, values: Mapping[str, Value]) -> Any:
    window = tr.window(TIME, _seconds(_CM1_S), _seconds(_CM1_SLIDE_S))
    asked = tr.stream(_asked(tasks, "category")).withWatermark(TIME, delay(values))
    return asked.groupBy(window, "category").agg(tr.sum("cpu").alias("totalCpu"))


def _cm1_spark(tasks: DataFrame, values: Mapping[str, Value]) -> Any:
    window = F.window(TIME, _seconds(_CM1_S), _seconds(_CM1_SLIDE_S))
    asked = _asked(tasks, "category").withWatermark(TIME, delay(values))
    return asked.groupBy(window, "category").agg(F.sum("cpu").alias("totalCpu"))


def _by_sum(rows: DataFrame) -> DataFrame:
    """Few rows, so in one piece: a sort of several would run the query twice, once to see where to cut."""
    return rows.repartition(1).sortWithinPartitions("totalCpu")


def _cm2_tailrace(tasks: DataFrame, values: Mapping[str, Value]) -> Any:
    window = tr.window(TIME, _seconds(_CM2_S), _seconds(_CM2_SLIDE_S))
    scheduled = tr.stream(_scheduled(tasks)).withWatermark(TIME, delay(values))
    return scheduled.groupBy(window, "job").agg(tr.avg("cpu").alias("avgCpu"))


def _cm2_spark(tasks: DataFrame, values: Mapping[str, Value]) -> Any:
    window = F.window(TIME, _seconds(_CM2_S), _seconds(_CM2_SLIDE_S))
    scheduled = _scheduled(tasks).withWatermark(TIME, delay(values))
    return scheduled.groupBy(window, "job").agg(F.avg("cpu").alias("avgCpu"))


def _sql(value: str, key: str, length_s: int, slide_s: int, where: str = "true") -> str:
    until = f"t - t % {slide_s} + {slide_s} * k AS {CLOSES_BY}"
    windows = f"range(1, {length_s // slide_s + 1}) AS windows(k)"
    return f"SELECT {until}, {key}, {value} FROM records, {windows} WHERE {where} GROUP BY ALL"


CM1 = StreamQuery(
    name="cm1",
    description="Cluster Monitoring 1: what each category asks for in every minute, moving by 10 seconds, sorted",
    family=TASKS,
    tailrace=_cm1_tailrace,
    spark=_cm1_spark,
    sql=_sql(f"sum(cpu)::DOUBLE * {CPU_UNIT} AS totalCpu", "category", _CM1_S, _CM1_SLIDE_S),
    rest=_by_sum,
)
CM2 = StreamQuery(
    name="cm2",
    description="Cluster Monitoring 2: what a scheduled task of each job asks for in every 30 seconds, moving by one",
    family=TASKS,
    tailrace=_cm2_tailrace,
    spark=_cm2_spark,
    sql=_sql(f"sum(cpu)::DOUBLE * {CPU_UNIT} / count(*) AS avgCpu", "job", _CM2_S, _CM2_SLIDE_S, f"type = {SCHEDULE}"),
)
register(workload(CM1), workload(CM2))
