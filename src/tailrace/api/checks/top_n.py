"""Checks what a user asks when the best rows of each group are to be kept."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.api.columns import check_collation, resolve
from tailrace.api.relations import Ranking, Watermark
from tailrace.api.windows import AnyWindow, CountWindow
from tailrace.errors import AnalysisError
from tailrace.types import Field

N_MAX = 1 << 20


def ranking(
    source: object,
    schema: tuple[Field, ...],
    watermark: Watermark | None,
    brought_window: AnyWindow | None,
    keys: tuple[Field, ...],
    window: AnyWindow | None,
    window_position: int,
    n: object,
    order_by: object,
    ascending: object,
    columns: object,
    rank: object,
) -> Ranking:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= N_MAX:
        raise AnalysisError(f"topN: n must be a whole number from 1 to {N_MAX:,}, but is {n!r}: topN(10, 'price')")
    if not isinstance(rank, str) or not rank.strip():
        raise AnalysisError(f"topN: rank takes the name of an output column, but got {rank!r}: topN(..., rank='place')")
    struct = None if brought_window is None or isinstance(brought_window, CountWindow) else brought_window.name
    usable = tuple(field for field in schema if field.name != struct)
    ordered = _names(order_by, "orderBy")
    by = [_kept(name, schema, struct, "topN: orderBy") for name in ordered]
    for field in by:
        if field in keys:
            raise AnalysisError(
                f"topN: orderBy {field.name!r} is a group column, which is the same in all rows of a group: remove it"
            )
    order = tuple(zip((field.name for field in by), _directions(ascending, len(by)), strict=True))
    if columns is None:
        shown = tuple(field for field in usable if field not in keys)
    else:
        shown = tuple(_kept(name, schema, struct, "topN: columns") for name in _names(columns, "columns"))
        again = [field.name for field in shown if field in keys]
        if again:
            raise AnalysisError(
                f"topN: {again[0]!r} is a group column and in the output anyway: remove it from columns"
            )
    for field in shown:
        _check_kept(field, "columns")
    return Ranking(
        source=source,
        schema=schema,
        watermark=watermark,
        window=window,
        window_position=window_position,
        keys=keys,
        columns=tuple(dict.fromkeys(shown)),
        order=order,
        n=n,
        rank=rank,
    )


def _names(given: object, argument: str) -> list[object]:
    names = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else []
    if not names:
        raise AnalysisError(
            f"topN: {argument} takes a column's name or a list of names, but got {given!r}: topN(10, 'price')"
        )
    return names


def _directions(ascending: object, count: int) -> list[bool]:
    given = [ascending] * count if isinstance(ascending, bool) else ascending
    if not isinstance(given, Sequence) or len(given) != count or not all(isinstance(one, bool) for one in given):
        raise AnalysisError(
            f"topN: ascending takes True or False, or one of them for each of the {count} columns of orderBy, but got "
            f"{ascending!r}"
        )
    return list(given)


def _kept(name: object, schema: tuple[Field, ...], struct: str | None, where: str) -> Field:
    field = resolve(name, schema, where)
    if field.name == struct:
        raise AnalysisError(
            f"{where}: column {field.name!r} is the window that rows come from and cannot be kept beside a row: group "
            f"by it, groupBy({field.name!r})"
        )
    _check_kept(field, where.removeprefix("topN: "))
    return field


def _check_kept(field: Field, argument: str) -> None:
    check_collation(field, f"topN: {argument}")
    if field.type.kind is None:
        raise AnalysisError(
            f"topN: column {field.name!r} is a {field.type}, which cannot be kept: leave it out with columns=[...], or "
            f"cast it first"
        )
