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
