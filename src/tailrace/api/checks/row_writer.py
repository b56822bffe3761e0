"""Checks what a user gives to ``foreach``, as PySpark does."""

from __future__ import annotations

from tailrace.errors import AnalysisError


def check_row_writer(writer: object) -> None:
    if callable(writer):
        return
    if not hasattr(writer, "process"):
        raise AnalysisError(
            f"foreach takes a function of a row, or an object with a method process(row) and perhaps "
            f"open(partition, epoch) and close(error), but got {writer!r}"
        )
    for name in ("open", "process", "close"):
        if not callable(getattr(writer, name, len)):
            raise AnalysisError(f"foreach: {name} of {writer!r} must be a method")
