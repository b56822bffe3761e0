"""Where the rows of a measured query go: one and the same user's code for every engine that is compared.

A sink decides much of a small batch's price, so it may not differ between engines. ``noop`` is the exception that needs
saying: Spark's engines drop their rows in their tasks, Tailrace drops a small output in the driver, which has it
already; neither starts a job for it. With ``collect`` and ``parquet`` both run the same function of a DataFrame. What
an engine's query leaves to the sink is done there with every sink, so that all deliver the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

Rest = Callable[[DataFrame], DataFrame]
"""What of an answer an engine leaves to its sink."""


def _noop(writer: Any, folder: Path, rest: Rest | None) -> Any:
    if rest is None:
        return writer.format("noop")

    def save(rows: DataFrame, epoch: int) -> None:
        rest(rows).write.format("noop").mode("overwrite").save()

    return writer.foreachBatch(save)


def _collect(writer: Any, folder: Path, rest: Rest | None) -> Any:
    def save(rows: DataFrame, epoch: int) -> None:
        (rest(rows) if rest else rows).collect()

    return writer.foreachBatch(save)


def _parquet(writer: Any, folder: Path, rest: Rest | None) -> Any:
    def save(rows: DataFrame, epoch: int) -> None:
        (rest(rows) if rest else rows).write.mode("overwrite").parquet(str(folder / f"epoch={epoch}"))

    return writer.foreachBatch(save)


SINKS: dict[str, Callable[[Any, Path, Rest | None], Any]] = {"collect": _collect, "parquet": _parquet, "noop": _noop}
"""From a query's ``writeStream``, a folder and the rest that is left to do to the writer with its sink."""
