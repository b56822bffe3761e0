"""What a registry knows of a query: how to build it, and how to read what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace.lab.nexmark.params import Params


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
    finish: Callable[[pa.Table, Params], pa.Table] = _as_said
    """What a sink has left to do to the rows, where the engine has no ``select`` at its end: names and forms, and what
    ``note`` says."""
    note: str = ""


@dataclass(frozen=True)
class Impossible:
    """The engine cannot express the query."""

    why: str
