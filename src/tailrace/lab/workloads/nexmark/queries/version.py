"""What a registry knows of a query: how to build it, and how to read what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.lab.workloads.nexmark.params import Params


class Mode(StrEnum):
    APPEND = "append"
    UPDATE = "update"


def _not_at_all(params: Params) -> int:
    return 0


def _as_said(rows: pa.Table, params: Params) -> pa.Table:
    return rows


@dataclass(frozen=True)
class Version:
    """One engine's version of a query."""

    build: Callable[[DataFrame, Params], Any]
    """From wide events to the result, which has a ``writeStream``."""
    mode: Mode = Mode.APPEND
    keys: tuple[str, ...] = ()
    """In update mode: a row takes the place of the earlier row with the same values in these columns."""
    closes_by: str | None = None
    """The column of event time that a row waits for: it is said once the watermark has reached it."""
    holds_back_ms: Callable[[Params], int] = _not_at_all
    """So much later than ``closes_by`` the watermark must be."""
    rest: Callable[[DataFrame, Params], DataFrame] | None = None
    """What of the answer the engine cannot compute itself: the sink does, in the engine's measured time."""
    finish: Callable[[pa.Table, Params], pa.Table] = _as_said
    """Names and forms in which answers are compared: a window as two columns, no columns beside the answer's. For
    the comparison; it computes nothing that the query asks for, and is in no measured time."""
    note: str = ""


@dataclass(frozen=True)
class Impossible:
    """The engine cannot express the query."""

    why: str
