"""What a user may ask of late rows."""

from __future__ import annotations

from typing import Any

import pytest

from support.bids import RecordingRuntime, bids
from tailrace.api.definition import ForeachBatch, Format, QueryDefinition
from tailrace.api.windows import window
from tailrace.errors import AnalysisError


def started(*args: Any, **options: Any) -> QueryDefinition:
    runtime = RecordingRuntime()
    stream = bids(runtime).withWatermark("ts", "1 second").groupBy(window("ts", "10 seconds")).count()
    writer = stream.writeStream.format("noop").option("checkpointLocation", "/data/q")
    writer.lateRows(*args, **options).start()
    return runtime.started[0]


def save(rows: object, epoch: int) -> None:
    pass


def test_a_function() -> None:
    assert started(save).late == ForeachBatch(save)


def test_a_format() -> None:
    assert started(path="/data/late").late == Format("parquet", "/data/late")
    late = started(format="JSON", path="s3://b/late", compression="gzip", ignoreNullFields=False, other=None).late
    assert late == Format("json", "s3://b/late", (("compression", "gzip"), ("ignoreNullFields", "false")))
    assert started(format="console").late == Format("console")


def test_nothing_is_said_where_nothing_is_asked() -> None:
    runtime = RecordingRuntime()
    stream = bids(runtime).groupBy("auction").count()
    stream.writeStream.outputMode("update").format("noop").option("checkpointLocation", "/data/q").start()
    assert runtime.started[0].late is None


@pytest.mark.parametrize(
    ("args", "options", "word"),
    [
        ((), {}, "needs a place"),
        ((save,), {"path": "/data/late"}, "not both"),
        (("parquet",), {}, "a function of"),
        ((), {"format": "parquet"}, "needs a path"),
        ((), {"format": "memory", "path": "/x"}, "keeps nothing"),
        ((), {"format": " ", "path": "/x"}, "a format's name"),
    ],
)
def test_refusals(args: tuple[Any, ...], options: dict[str, Any], word: str) -> None:
    with pytest.raises(AnalysisError, match=word):
        started(*args, **options)
