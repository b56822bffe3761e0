"""Checks what a user asks when duplicates are to be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace.api.columns import CANNOT_BE_PASSED_ON, check_kept, check_key, resolve
from tailrace.api.relations import Deduplication, Join, Relation, SparkHop, Watermark
from tailrace.api.windows import AnyWindow, CountWindow
from tailrace.errors import AnalysisError
from tailrace.ids import Micros
from tailrace.types import Field


def deduplication(
    source: object,
    schema: tuple[Field, ...],
    watermark: Watermark | None,
    brought_window: AnyWindow | None,
    subset: object,
    where: str,
    *,
    within: bool,
) -> Deduplication:
    """``where``: the user's call, for errors. ``within``: forget a key when the watermark's delay has passed."""
    if brought_window is not None and not isinstance(brought_window, CountWindow):
        raise AnalysisError(
            f"{where}: these rows come with a window, {brought_window.name!r}, which cannot be kept beside a row: drop "
            f"duplicates before you group, or in foreachBatch"
        )
    if within and watermark is None:
        raise AnalysisError(
            f"{where} forgets a key when the watermark is its delay beyond the key's event time, and this stream has "
            f"no watermark: call .withWatermark('ts', '10 seconds') first, or use dropDuplicates, which never forgets"
        )
    keys = _keys(subset, schema, where)
    check_kept(schema, f"{where}: column", CANNOT_BE_PASSED_ON)
    if watermark is not None:
        watermark = replace(watermark, delay=_delay(source, watermark))
    return Deduplication(source, schema, watermark, keys, within)


def _keys(subset: object, schema: tuple[Field, ...], where: str) -> tuple[Field, ...]:
    if subset is None:
        keys = schema
    elif isinstance(subset, str):
        keys = (resolve(subset, schema, where),)
    elif isinstance(subset, Sequence):
        keys = tuple(dict.fromkeys(resolve(name, schema, where) for name in subset))
    else:
        raise AnalysisError(
            f"{where} takes a list of column names, but got {subset!r} ({type(subset).__name__}): {where}(['id'])"
        )
    if not keys:
        raise AnalysisError(f"{where} needs at least one column by which rows are compared: {where}(['id'])")
    for key in keys:
        check_key(key, where, "compared" if subset is not None else "compared: name the columns that are, as in ['id']")
    return keys


def _delay(source: object, watermark: Watermark) -> Micros:
    """What ``withWatermark`` was given, however many operators ago; of a join, the longer of both."""
    if isinstance(source, Join):
        inputs = [(side.source, side.watermark) for side in (source.left, source.right)]
    elif isinstance(source, SparkHop):
        inputs = [(each, watermark) for each in source.inputs]
    elif isinstance(source, Relation):
        inputs = [(source.source, getattr(source, "watermark", None))]
    else:
        return watermark.delay
    return max((_delay(one, mark) for one, mark in inputs if mark is not None), default=watermark.delay)
