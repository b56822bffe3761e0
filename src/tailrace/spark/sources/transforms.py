"""A stream's source with the user's transforms on it, one after the other: between two of them is a point for hints.

Each start of a query makes the streaming plan anew, with an always-true filter at every point from which hints may
come (``hints.points``). So a transform is called once when it is chained, and once for each start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.errors import AnalysisError
from tailrace.spark.sources.inspection import check_source

Step = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Transformed:
    """``frames``: the source's rows, then what each step makes of them."""

    steps: tuple[Step, ...]
    frames: tuple[DataFrame, ...]

    @property
    def base(self) -> DataFrame:
        return self.frames[0]


def frame_of(source: object) -> DataFrame:
    """The rows of a stream below its first Tailrace operator."""
    frame = source.frames[-1] if isinstance(source, Transformed) else source
    assert isinstance(frame, DataFrame)
    return frame


def then(source: object, step: Step) -> Transformed:
    """The source with one more step."""
    before = source if isinstance(source, Transformed) else Transformed((), (frame_of(source),))
    made = step(before.frames[-1])
    return Transformed((*before.steps, step), (*before.frames, made))


def transformed(source: object, function: object, label: str) -> Transformed:
    """The source with one more transform of the user's, checked. ``label``: the user's call."""
    if not callable(function):
        raise AnalysisError(f"{label} takes a function of a DataFrame, but got {type(function).__name__}")
    name = getattr(function, "__name__", "function")

    def step(frame: DataFrame) -> DataFrame:
        try:
            made = function(frame)
        except PySparkException as error:
            raise AnalysisError(f"{label}: {str(error).splitlines()[0]}") from error
        if not isinstance(made, DataFrame):
            raise AnalysisError(f"{label}: {name} must give a DataFrame, but gave {type(made).__name__}")
        return check_source(made)

    return then(source, step)
