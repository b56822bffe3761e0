"""Where the checkpoint of a plain query lies that names none: as in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from pyspark.sql import SparkSession

from tailrace.api.options import CHECKPOINT_LOCATION
from tailrace.env.files.scratch import temporary_folder
from tailrace.env.randomness import new_run_id

_CONF = "spark.sql.streaming.checkpointLocation"
_KEEP_NOTHING = ("memory", "console", "noop", "foreachbatch", "foreach")


def checkpoint_of(spark: SparkSession, options: Mapping[str, str], name: str | None) -> str:
    """The writer's option, by its name in lower case; else a folder of the query's name below the session's setting.

    Empty where there is neither. A query without a name begins anew with each start.
    """
    given = options.get(CHECKPOINT_LOCATION.lower(), "")
    below = str(spark.conf.get(_CONF, "") or "")
    return given or (f"{below.rstrip('/')}/{name or new_run_id()}" if below else "")


def passing_checkpoint(spark: SparkSession, sink: str, undo: ExitStack) -> str:
    """One that ``undo`` removes, for a sink that keeps nothing; empty where there must be one that stays.

    State servers of other machines could not read it.
    """
    if sink not in _KEEP_NOTHING or not str(spark.sparkContext.master).startswith("local"):
        return ""
    return undo.enter_context(temporary_folder())
