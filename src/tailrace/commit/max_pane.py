"""The largest pane in an object: an object whose windows have all closed is dropped without being read.

The *max pane* of an object is, for each operator that has records in it, the largest pane among them. A record's
identity contains its pane: a value, a tombstone or a mark is about its own pane and about no other. So below an
operator's horizon no record means anything, and neither does its absence. With the horizons of a manifest:

- An operator's records in an object are *over* where their max pane is below its horizon. Nobody has to read them.
- An object is *dead* where the records of all its operators are over. The manifest means the same with it and without.

Records are never over where they have no panes, or where the operator has no horizon. Horizons only grow from a
manifest to the next (``grown``): what is dead stays dead.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.typed_json import typed

PANE_COLUMN = "__pane"
"""Of every section whose records have panes. In stored files: see docs/reference/log-format.md."""

MaxPane = tuple[tuple[str, int | None], ...]
"""Operators and their largest panes, sorted; None where an operator's records have no panes."""


class MaxPaneTracker:
    """Finds the max pane of an object from the sections that are written to it. One thread."""

    def __init__(self) -> None:
        self._found: dict[str, int | None] = {}

    def see(self, operator: str, section: pa.RecordBatch) -> None:
        if section.num_rows:
            pane = _largest_pane(section)
            before = self._found.get(operator, pane)
            self._found[operator] = None if pane is None or before is None else max(pane, before)

    def max_pane(self) -> MaxPane:
        return tuple(sorted(self._found.items()))


def is_over(max_pane: MaxPane, operator: str, horizon: int) -> bool:
    """Whether nothing of the operator's records in an object is left by the horizon."""
    pane = dict(max_pane).get(operator)
    return pane is not None and pane < horizon


def is_dead(max_pane: MaxPane, horizons: Mapping[str, int]) -> bool:
    """Whether nothing at all in an object is left by the horizons. That is so where it has no records."""
    return all(operator in horizons and is_over(max_pane, operator, horizons[operator]) for operator, _ in max_pane)


def grown(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The horizons of a manifest: those of the one before it, where they have grown the new ones."""
    return {**before, **{operator: max(each, before.get(operator, each)) for operator, each in now.items()}}


def max_pane_to_json(max_pane: MaxPane) -> dict[str, int | None]:
    return dict(max_pane)


def max_pane_from_json(raw: Any) -> MaxPane:
    found = typed(dict[str, int | None], raw)
    return tuple(sorted(found.items()))


def _largest_pane(section: pa.RecordBatch) -> int | None:
    panes = [section.column(at) for at in section.schema.get_all_field_indices(PANE_COLUMN)]
    if len(panes) != 1 or panes[0].type != pa.int64() or panes[0].null_count:
        return None
    largest: int = pc.max(panes[0]).as_py()
    return largest
