"""Where the rows of a measured query go: one and the same user's code for every engine that is compared.

A sink decides much of a small batch's price, so it may not differ between engines. ``noop`` is the exception that needs
saying: Spark's engines drop their rows in their tasks, Tailrace drops a small emission in the driver, which has it
already; neither starts a job for it. With ``collect`` and ``parquet`` both run the same function of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame


def _noop(writer: Any, folder: Path) -> Any:
    return writer.format("noop")


def _collect(writer: Any, folder: Path) -> Any:
    def save(rows: DataFrame, epoch: int) -> None:
        rows.collect()

    return writer.foreachBatch(save)


def _parquet(writer: Any, folder: Path) -> Any:
    def save(rows: DataFrame, epoch: int) -> None:
        rows.write.mode("overwrite").parquet(str(folder / f"epoch={epoch}"))

    return writer.foreachBatch(save)


SINKS: dict[str, Callable[[Any, Path], Any]] = {"collect": _collect, "parquet": _parquet, "noop": _noop}
"""From a query's ``writeStream`` and a folder to the writer with its sink."""
