"""Where Spark has changed what it does not promise, the error says what is gone and what to do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError, Py4JJavaError

from tailrace.errors import AnalysisError
from tailrace.spark import private


class Gone:
    """Stands for an object of the JVM whose methods have other names now: py4j finds out when they are called."""

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> Any:
            raise Py4JError(f"Method {name}([]) does not exist")

        return call


@pytest.mark.parametrize("frame", [SimpleNamespace(), SimpleNamespace(_jdf=Gone())], ids=["no _jdf", "no method"])
@pytest.mark.parametrize(
    ("use", "interface"),
    [
        (lambda frame: list(private.streaming_plan(frame)), "analyzed().isStreaming()"),
        (lambda frame: private.expression_ids(frame, "k"), "analyzed().output()"),
        (lambda frame: private.batch_texts(frame, 1), "queryExecution().logical()"),
    ],
)
def test_what_is_gone_is_named_with_the_version_and_the_way_out(
    frame: Any, use: Callable[[Any], object], interface: str
) -> None:
    with pytest.raises(AnalysisError) as raised:
        use(frame)
    text = str(raised.value)
    assert interface in text and pyspark.__version__ in text and "docs/reference/support-matrix.md" in text


@pytest.mark.parametrize("part", ["is_leaf", "streaming_inputs", "file_source", "table_source"])
def test_a_node_that_has_changed(part: str) -> None:
    node = SimpleNamespace(nodeName=lambda: "StreamingRelation")
    found = private.PlanNode(node)
    with pytest.raises(AnalysisError, match=pyspark.__version__):
        use = getattr(found, part)
        use()


@pytest.mark.parametrize(
    ("java_class", "answer"),
    [
        ("java.io.FileNotFoundException", False),
        ("org.apache.hadoop.fs.FileAlreadyExistsException", False),
        ("org.apache.hadoop.fs.s3a.RemoteFileChangedException", False),
        ("java.io.IOException", None),
    ],
)
def test_a_rename_that_another_was_quicker_with_is_none(java_class: str, answer: bool | None) -> None:
    """S3A finds out late: its rename is a copy, whose source may go meanwhile."""
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = SimpleNamespace(getClass=lambda: SimpleNamespace(getName=lambda: java_class))

    def rename(*_: object) -> bool:
        raise error

    folder = private.HadoopFolder.__new__(private.HadoopFolder)
    folder.uri, folder._path_class, folder._files = "s3a://x", str, SimpleNamespace(rename=rename)
    if answer is None:
        with pytest.raises(Py4JJavaError):
            folder.rename("a", "b")
    else:
        assert folder.rename("a", "b") is answer


def test_an_error_of_the_jvm_is_passed_on() -> None:
    """A job that fails is no change of Spark's interface."""
    error = Py4JJavaError.__new__(Py4JJavaError)

    def collect() -> Any:
        raise error

    rdd = SimpleNamespace(getNumPartitions=lambda: 1, collect=collect)
    logical = SimpleNamespace(getClass=lambda: SimpleNamespace(getName=lambda: private._BATCH_NODE), rdd=lambda: rdd)
    frame: Any = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(logical=lambda: logical)))
    with pytest.raises(Py4JJavaError) as raised:
        private.batch_texts(frame, 1)
    assert raised.value is error
