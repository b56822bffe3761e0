"""Checks what a user asks of a function of a window's rows."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.api.windows import AnySession, AnyWindow, CountWindow
from tailrace.errors import AnalysisError
from tailrace.types import Field


def check_window_function(func: object, window: AnyWindow | None, keys: Sequence[Field], per_key: object) -> None:
    if not callable(func):
        raise AnalysisError(f"applyInWindow takes a function, but got {func!r} ({type(func).__name__})")
    if window is None:
        raise AnalysisError(
            "applyInWindow needs a window, whose end is when the function is called: add "
            "tailrace.window('ts', '10 seconds') to groupBy"
        )
    _check_whole(window, keys, per_key)
    if isinstance(window, CountWindow) and window.event_time is not None:
        raise AnalysisError(
            "applyInWindow: what your function gives says which window it is of by its number, and every key has "
            "one of that number, so that its event time is not known: remove eventTime from "
            "tailrace.count_window(...), or use agg(...) or topN(...), whose rows have their key"
        )


def check_columns(
    window: AnyWindow | None, keys: Sequence[Field], read: Sequence[Field], fields: Sequence[Field]
) -> None:
    """``read``: what the function gets beside the keys. ``fields``: what it gives."""
    if isinstance(window, AnySession | CountWindow) and window.name in {
        field.name for field in (*keys, *read, *fields)
    }:
        raise AnalysisError(
            f"applyInWindow: the function sees the window in a column {window.name!r}, and another one has "
            f"that name: give the window another with .alias(...)"
        )
    for field in (*read, *fields):
        kept = field.type if field in read else field.type.element or field.type
        if kept.kind is None:
            raise AnalysisError(
                f"applyInWindow: column {field.name!r} is a {field.type}, which is not supported: leave it out "
                f"with columns=[...], or cast it first"
            )


def _check_whole(window: AnyWindow | None, keys: Sequence[Field], per_key: object) -> None:
    """Refuse a function that would see a part of its window without anyone having said that it may."""
    if not isinstance(per_key, bool):
        raise AnalysisError(f"applyInWindow: perKey must be True or False, but is {per_key!r}")
    if isinstance(window, AnySession | CountWindow):
        return  # each key's own, and given whole
    if keys and not per_key:
        names = ", ".join(repr(key.name) for key in keys)
        raise AnalysisError(
            f"applyInWindow: rows are grouped by the window and by {names}, and so are spread over servers, and "
            f"in a large window over several calls: a call sees some of the keys. If your function treats each "
            f"key by itself, say perKey=True; if it compares keys, group by the window alone, and it sees every "
            f"row of a window in one call"
        )
    if per_key and not keys:
        raise AnalysisError(
            "applyInWindow: perKey=True needs the columns that make a key, beside the window, in groupBy; without "
            "them a call sees a whole window: remove it"
        )
