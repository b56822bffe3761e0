"""Where in a user's program an expression or a call stands, for messages: ``(at jobs/counts.py:14)``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyspark

from tailrace.errors import AnalysisError

_MARK = " (at "
_NOT_THE_USERS = tuple(str(each) for each in (Path(__file__).parents[2], Path(pyspark.__file__).parent))


class _Placed(Protocol):
    @property
    def place(self) -> str:
        """Empty where it is not known."""


@contextmanager
def placed(part: _Placed) -> Iterator[None]:
    """A refusal in here is about a part of the query. What is inside of it knows its place better."""
    try:
        yield
    except AnalysisError as error:
        raise at_place(error, lambda _: part.place) from error


def at_place(error: AnalysisError, place: Callable[[str], str]) -> AnalysisError:
    """The error with where what it is about stands, unless it says so. ``place``: of a message."""
    if _MARK in str(error):
        return error
    found = place(str(error))
    return type(error)(f"{error}{_MARK}{found})") if found else error


def call_site() -> str:
    """Where the user's program has called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
