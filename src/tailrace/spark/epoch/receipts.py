"""Runs the job of an epoch's ingest, and collects its receipts.

An error of a user's function in a task is raised in the driver as what it is: Spark passes on its text alone.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tailrace.errors import UserFunctionError
from tailrace.spark.private import texts_of
from tailrace.spark.tasks.ingest import Receipt

_OUR_ERROR = re.compile(
    rf"^{UserFunctionError.__module__}\.{UserFunctionError.__name__}: (.*)", re.DOTALL | re.MULTILINE
)
_SPARKS_OWN = re.compile(r"\n\s+at [\w.$]+\(|\n\s*SQLSTATE: |\nDriver stacktrace:")
"""What Spark appends to the text: frames of its own code, and the class of the error."""


def receipts_of(batch: DataFrame) -> list[Receipt]:
    """Runs the tasks of the batch, and gives the receipts of the committed attempts: one of each partition."""
    try:
        receipts = [Receipt.from_json(text) for text in texts_of(batch)]
    except PySparkException as error:
        found = _OUR_ERROR.search(str(error))
        if found is None:
            raise
        raise UserFunctionError(_SPARKS_OWN.split(found.group(1))[0].strip()) from error
    assert len({receipt.partition for receipt in receipts}) == len(receipts), "two receipts of one partition"
    return receipts
