"""Uses of Spark's logical plans, which Spark does not promise, on a live session, as ``query/test_private.py``.

What the tests of whole queries do not look at by itself.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.spark.expressions.catalyst import Expression
from tailrace.spark.expressions.plans import Above, Leaf, Node, Template, plan_of


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    schema = "k bigint, s string, d double, ts timestamp"
    return spark.readStream.schema(schema).parquet(str(tmp_path_factory.mktemp("in")))


def test_what_is_gone_is_named(rows: DataFrame) -> None:
    class Other:
        """What a release might have in the place of Spark's class."""

    with pytest.raises(tr.AnalysisError, match=r"has no Deduplicate.keys\(\), .* Spark does not promise"):
        Node(Other()).compared()
    with pytest.raises(tr.AnalysisError, match=r"has no Expression.sql\(\)"):
        _ = Expression(Other()).text


def test_nodes_and_expressions(rows: DataFrame) -> None:
    plan = plan_of(rows.withWatermark("ts", "90 seconds").where("k > 1").selectExpr("k + 1 AS more", "ts", "rand()"))
    assert [node.kind for node in plan.walk()] == ["Project", "Filter", "EventTimeWatermark", "StreamingRelation"]
    more, ts, chance = plan.expressions
    assert (more.kind, more.name, more.unaliased.kind, more.type_name) == ("Alias", "more", "Add", "bigint")
    assert ts.is_attribute and ts.delay_ms == 90_000 and more.delay_ms is None
    assert more.references == {plan.child.output[0].id} and more.attribute.id == plan.output[0].id
    assert more.repeatable and not chance.repeatable
    assert not plan_of(rows.select(F.current_date())).expressions[0].repeatable
    assert more.same_as(more) and not more.same_as(ts)
    assert plan.is_streaming and plan.child.condition().text == "(k > CAST(1 AS BIGINT))"
    assert more.unaliased.children[1].constant() == 1 and ts.constant() is None
    assert more.flag("nothing") is None


def test_a_part_of_a_plan_over_other_rows(spark: SparkSession, rows: DataFrame) -> None:
    """A template has the columns by their ids: two of one name, and rows in another order."""
    chosen = rows.selectExpr("k", "s").selectExpr("k * 2 AS x", "concat(s, '!') AS x").where("s != 'b'")
    top = plan_of(chosen)
    nodes = [node for node in top.walk() if node.children]
    columns = nodes[-1].child.output
    place: Above | Leaf = Leaf([(columns[1], 0), (columns[0], 1)], None)
    for node in nodes[::-1]:
        place = Above(node, {0: place})
    template = Template(place)
    for number in (1, 10):
        made = template.over(spark.createDataFrame([("a", number), ("b", 2)], "t string, n bigint"))
        assert [tuple(row) for row in made.collect()] == [(2 * number, "a!")]
        assert made.columns == ["x", "x"] and not made.isStreaming


def test_joins(rows: DataFrame) -> None:
    left = rows.withWatermark("ts", "1 second")
    right = rows.selectExpr("k AS same", "ts AS at").withWatermark("at", "2 seconds")
    near = "at > ts - INTERVAL 4 SECONDS AND at <= ts + INTERVAL 9 SECONDS"
    join = next(n for n in plan_of(left.join(right, F.expr(f"k = same AND {near}"))).walk() if n.kind == "Join")
    assert join.join_type() == "Inner"
    equal = join.equal_keys()
    assert equal is not None and [each.text for each in (*equal.left, *equal.right)] == ["k", "same"]
    upper, lower = join.state_bound_ms(0), join.state_bound_ms(1)
    assert upper is not None and lower is not None and abs(upper + 9_000) <= 1 and abs(lower + 4_000) <= 1
    endless = next(n for n in plan_of(left.join(right, F.expr("k = same"))).walk() if n.kind == "Join")
    assert endless.state_bound_ms(0) is None
    assert join.optimized(rows.sparkSession).kind in ("Join", "Project")
