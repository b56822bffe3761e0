"""One plan on both engines, over the same rows in the same micro-batches, and whether their rows are the same."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from support.plans.plan import Plan
from support.queries.plain import Rows, rows_of, without
from tailrace.testing import ScriptedSource

SAME, DIFFERENT, UNREAD, NO_QUERY, BOTH_FAIL = "same", "different", "unread", "no query", "both fail"


@dataclass(frozen=True)
class Verdict:
    """``kind``: one of those above. ``about``: why, or what differs. ``rows``: how many there were to compare."""

    kind: str
    about: str = ""
    rows: int = 0


def compare(spark: SparkSession, plan: Plan, folder: Path) -> Verdict:
    """``folder``: is made, and removed."""
    session = spark.newSession()
    for name, value in plan.confs.items():
        session.conf.set(name, value)
    try:
        return _compare(session, plan, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compare(spark: SparkSession, plan: Plan, folder: Path) -> Verdict:
    streams = {}
    for variable, script in zip(("rows", "others"), plan.scripts, strict=False):
        source = ScriptedSource(folder / variable, script.schema)
        source.add(script.tables)
        streams[variable] = source.stream(spark)
    table = spark.range(3).selectExpr("CAST(id AS INT) AS n", "concat('title ', id) AS title")
    try:
        frame, sparks = (eval(text, {"F": F, "table": table, **streams}) for text in (plan.text, plan.sparks_text))
    except AnalysisException as error:
        return Verdict(NO_QUERY, _short(error))
    try:
        ours = Run(tr.writeStream(frame, fallback=False).options(watermark=plan.rule, shards=2), plan, folder / "a")
    except tr.AnalysisError as refusal:
        return Verdict(UNREAD, str(refusal))
    try:
        theirs = Run(sparks.writeStream, plan, folder / "b")  # at once: much of a short query is waiting
    except AnalysisException as error:
        ours.end()
        return Verdict(NO_QUERY, _short(error))
    return _verdict(plan, ours.end(), theirs.end())


class Run:
    """A query from its start on, to the end of its input."""

    def __init__(self, writer: Any, plan: Plan, checkpoint: Path) -> None:
        self._rows: dict[int, Rows] = {}
        started = writer.outputMode(plan.mode).foreachBatch(self._save).option("checkpointLocation", str(checkpoint))
        self._query = started.trigger(availableNow=True).start()

    def _save(self, batch: DataFrame, epoch: int) -> None:
        self._rows[epoch] = rows_of(batch)

    def end(self) -> dict[int, Rows] | Exception:
        """The rows of each epoch; or why it failed."""
        try:
            self._query.awaitTermination()
        except Exception as error:
            return error
        finally:
            self._query.stop()
        return self._rows


def _verdict(plan: Plan, ours: dict[int, Rows] | Exception, theirs: dict[int, Rows] | Exception) -> Verdict:
    if isinstance(theirs, Exception) and "is not supported" in str(theirs):  # found when an epoch was planned
        return Verdict(NO_QUERY, _short(theirs))
    if isinstance(ours, Exception) or isinstance(theirs, Exception):
        kind = BOTH_FAIL if isinstance(ours, Exception) and isinstance(theirs, Exception) else DIFFERENT
        return Verdict(kind, f"Spark: {_outcome(theirs)}\nTailrace: {_outcome(ours)}")
    found = _differences(plan, ours, theirs)
    return Verdict(DIFFERENT if found else SAME, found, sum(len(rows) - 1 for rows in theirs.values()))


def _differences(plan: Plan, ours: dict[int, Rows], theirs: dict[int, Rows]) -> str:
    """In words; empty: none."""
    heads = {str(rows[0]) for found in (ours, theirs) for rows in found.values()}
    if len(heads) > 1:
        return f"columns differ: {' and '.join(sorted(heads))}"
    if plan.by_epoch and sorted(ours) != sorted(theirs):
        return f"epochs of Spark {sorted(theirs)}, of Tailrace {sorted(ours)}"
    if plan.keyless:
        both = [("last row", _last(theirs), _last(ours))] if _last(ours) else []
    elif plan.by_epoch:
        both = [(f"epoch {number}", theirs[number][1:], ours[number][1:]) for number in theirs]
    else:
        both = [_in_the_end(theirs, ours)]
    lines = []
    for where, wanted, given in both:
        missing, more = without(wanted, given), without(given, wanted)
        if missing or more:
            lines.append(f"{where}: Spark alone {missing[:4]}, Tailrace alone {more[:4]}")
    return "\n".join(lines)


def _last(found: dict[int, Rows]) -> Rows:
    """Of the epochs with rows."""
    return next((found[epoch][1:] for epoch in sorted(found, reverse=True) if found[epoch][1:]), [])


def _in_the_end(theirs: dict[int, Rows], ours: dict[int, Rows]) -> tuple[str, Rows, Rows]:
    wanted, given = ([row for rows in found.values() for row in rows[1:]] for found in (theirs, ours))
    return "in the end", wanted, given


def _outcome(found: dict[int, Rows] | Exception) -> str:
    return _short(found) if isinstance(found, Exception) else f"{len(found)} epochs"


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:600]}"
