"""Errors of a user's function in a task, raised in the driver as what they are: Spark passes on text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from tailrace.errors import UserFunctionError

_OUR_ERROR = re.compile(
    rf"^{UserFunctionError.__module__}\.{UserFunctionError.__name__}: (.*)", re.DOTALL | re.MULTILINE
)
_SPARKS_OWN = re.compile(r"\n\s+at [\w.$]+\(|\n\s*SQLSTATE: |\nDriver stacktrace:")
"""What Spark appends to the text: frames of its own code, and the class of the error."""


@contextmanager
def raising_task_errors() -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        found = _OUR_ERROR.search(str(error))
        if found is None:
            raise
        raise UserFunctionError(_SPARKS_OWN.split(found.group(1))[0].strip()) from error
