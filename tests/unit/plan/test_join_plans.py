"""The plan of a join: what explain says of it, what of it may not change, and what cannot stand behind it."""

import json

import pytest

import tailrace as tr
from support.bids import RecordingRuntime
from tailrace.api.options import Options, Route
from tailrace.api.relations import OutputMode
from tailrace.api.stream import Stream
from tailrace.api.windows import session_window, window
from tailrace.errors import AnalysisError
from tailrace.operators.join.spec import How, JoinKind
from tailrace.plan.explain import explain
from tailrace.plan.fingerprint import differences, fingerprint
from tailrace.plan.physical import plan_relation
from tailrace.types import DataType, Field

SECOND = 1_000_000
LEFT = {"k": "bigint", "lt": "timestamp", "lt2": "timestamp", "ends": "timestamp", "a": "string"}
RIGHT = {"k": "bigint", "rt": "timestamp", "until": "timestamp", "b": "double"}
BOUNDS = ("-5 seconds", "1 minute")


def stream(types, time, delay):
    fields = tuple(Field(name, DataType(type_)) for name, type_ in types.items())
    made = Stream("a DataFrame", fields, RecordingRuntime())
    return made if time is None else made.withWatermark(time, delay)


def joined(left_time="lt", right_time="rt", left=LEFT, right=RIGHT, delay="5 seconds", **options):
    options = {"within": BOUNDS} | options
    return stream(left, left_time, delay).join(stream(right, right_time, "1 minute"), "k", **options)


def planned(relation, **options):
    mode = OutputMode.UPDATE if relation.source.refusal(OutputMode.APPEND) else OutputMode.APPEND
    return plan_relation(relation.source, mode, Options(**options))


def stored(*, run=(), **options):
    return json.loads(json.dumps(fingerprint(planned(joined(**options), **dict(run)))))


ALONE = {"within": None, "left_time": None, "right_time": None}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({}, JoinKind.INTERVAL, "rows meet where right time - left time is from -5 seconds to 1 minute"),
        ({"within": (None, "1 hour")}, JoinKind.INTERVAL, "rows meet where right time - left time is at most 1 hour"),
        ({"within": ("0 seconds", None)}, JoinKind.INTERVAL, "is at least 0 seconds"),
        ({}, JoinKind.INTERVAL, "a right row is kept until the watermark is 5 seconds after its time"),
        ({"within": ("0 seconds", None)}, JoinKind.INTERVAL, "a left row is kept for ever"),
        (
            {"within": ("2 seconds", "9 seconds")},
            JoinKind.INTERVAL,
            "right row is kept until the watermark is 2 seconds before",
        ),
        (
            {"within": None, "window": window("lt", "1 minute", "20 seconds")},
            JoinKind.WINDOW,
            "rows meet in a window: 1 minute every 20 seconds, in column window",
        ),
        (
            {"within": None, "validTo": "ends"},
            JoinKind.CONTINUOUS,
            "rows meet while the left one is valid, from its event time until ends",
        ),
        ({"within": None, "validTo": "until"}, JoinKind.CONTINUOUS, "while the right one is valid"),
        ({"within": None, "validTo": "until"}, JoinKind.CONTINUOUS, "a left row is kept until it is late"),
        ({"within": None, "validTo": "until"}, JoinKind.CONTINUOUS, "a right row is kept while it is valid"),
        (
            {"within": None, "validTo": "ends", "ttl": "1 day"},
            JoinKind.CONTINUOUS,
            "valid, at most until the watermark is 1 day",
        ),
        ({"within": None, "ttl": "1 hour"}, JoinKind.TTL, "a row is kept until the watermark is 1 hour after its time"),
        ({"within": None}, JoinKind.TTL, "a row is kept for ever: give the join a ttl, or a condition in time"),
        ({"within": None, "window": window("lt", "1 minute")}, JoinKind.WINDOW, "kept until its last window ends"),
        (ALONE, JoinKind.TTL, "a row is kept for ever: there is no watermark"),
    ],
)
def test_explain_says_which_rows_meet_and_how_long_they_are_kept(options, kind, said):
    plan = planned(joined(**options))
    text = explain(plan)
    assert plan.operator.kind is kind
    assert said in text
    assert f"store {'AAR' if kind is JoinKind.WINDOW else 'AUR'}: " in text
    assert "reads k bigint, lt timestamp, lt2 timestamp, ends timestamp, a string\n" in text
    assert "reads k bigint, rt timestamp, until timestamp, b double" in text


def test_explain_says_both_watermarks_and_what_is_behind():
    text = explain(planned(joined(how="left", eventTime="at").groupBy(window("at", "1 hour")).agg(tr.count())))
    assert "left outer join on k bigint" in text
    assert "watermark on lt, 5 seconds behind the largest event time" in text
    assert "watermark on rt, 1 minute behind the largest event time" in text
    assert "of these the smaller one counts" in text
    assert "watermark of the operator below, 1 minute behind" in text


@pytest.mark.parametrize(
    "free",
    [
        {"delay": "2 hours"},
        {"run": {"route": Route.SHUFFLE}},
        {"run": {"memory_bytes": 1 << 24}},
        {"within": ("-5000 milliseconds", "60 seconds")},
    ],
)
def test_how_a_join_is_run_may_change(free):
    assert differences(stored(), stored(**free)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"how": "left"}, ["how: was inner, is now left_outer"]),
        (
            {"within": ("-5 seconds", "2 minutes")},
            [
                "condition: was where right time - left time is from -5 seconds to 1 minute, "
                "is now where right time - left time is from -5 seconds to 2 minutes"
            ],
        ),
        ({"ttl": "1 hour"}, ["ttl: was none, is now 1 hour"]),
        ({"left_time": "lt2"}, ["event time: was lt and rt timestamp, is now lt2 and rt timestamp"]),
        ({"eventTime": "at"}, ["output columns: was k, lt, lt2, ends, a, rt, until, b, is now"]),
        ({"run": {"shards": 32}}, ["shards: was 64, is now 32"]),
        ({"right": {**RIGHT, "b": "int"}}, ["right columns: was", "b double, is now", "b int"]),
        ({"left": {**LEFT, "k": "int"}, "right": {**RIGHT, "k": "int"}}, ["keys: was k bigint, is now k int"]),
    ],
)
def test_what_of_a_join_may_not_change_is_said(changed, said):
    text = "; ".join(differences(stored(), stored(**changed)))
    for words in said:
        assert words in text


def test_other_conditions_and_other_operators():
    validity, by_key = stored(within=None, validTo="ends"), stored(within=None, ttl="1 hour")
    windows = stored(within=None, window=window("lt", "1 minute"))
    found = {json.dumps(differences(one, other)) for one in (stored(), validity, by_key) for other in (windows, by_key)}
    assert all("condition: was" in each for each in found if each != "[]")
    assert differences(windows, stored(within=None, window=window("lt", "1 minute").alias("w")))
    counted = stream(LEFT, "lt", "5 seconds").groupBy(window("lt", "1 minute")).agg(tr.count())
    assert differences(stored(), fingerprint(planned(counted))) == ["operator: was Join, is now Aggregate"]
    behind = joined(eventTime="at").groupBy(window("at", "1 minute")).agg(tr.count())
    assert differences(stored(eventTime="at"), fingerprint(planned(behind))) == ["operators: was 1, is now 2"]


@pytest.mark.parametrize(
    ("options", "lag"),
    [
        ({}, 0),
        ({"how": "left"}, 60 * SECOND),
        ({"how": "left", "within": ("-9 seconds", "-2 seconds")}, 0),
        ({"how": "left", "within": None, "ttl": "7 seconds"}, 7 * SECOND),
        ({"how": "left", "within": None, "validTo": "until"}, 0),
        ({"how": "left", "within": None, "validTo": "ends", "ttl": "7 seconds"}, 7 * SECOND),
    ],
)
@pytest.mark.parametrize("over", [window, session_window])
def test_what_stands_behind_a_join_waits_for_its_left_rows(options, lag, over):
    plan = planned(joined(eventTime="at", **options).groupBy(over("at", "1 hour"), "a").agg(tr.count()))
    assert [stage.lag for stage in plan.stages] == [0, lag]


def test_only_what_the_next_operator_reads_is_read_and_kept():
    pairs = joined(within=None, validTo="ends", eventTime="at")
    plan = planned(pairs.groupBy(window("at", "1 hour"), "a").agg(tr.count()))
    assert [field.name for field in (*plan.operator.left, *plan.operator.right)] == ["ends", "a"]
    assert [[field.name for field in each.columns] for each in plan.inputs] == [["k", "ends", "a", "lt"], ["k", "rt"]]
    alone = planned(pairs).operator
    assert (len(alone.left), len(alone.right)) == (len(LEFT) - 1, len(RIGHT) - 1)
    without = planned(pairs.dropDuplicates(["until"]).groupBy("k").agg(tr.count())).operator
    assert [field.name for field in (*without.left, *without.right)] == ["ends", "until"]


def test_nothing_that_closes_stands_behind_left_rows_of_any_age():
    pairs = joined(how="left", within=None, validTo="ends", eventTime="at")
    with pytest.raises(AnalysisError, match="give the join a ttl"):
        planned(pairs.groupBy(window("at", "1 hour")).agg(tr.count()))
    rolling = planned(pairs.groupBy("a").agg(tr.count()))
    assert not rolling.last.watermarked and rolling.operator.how is How.LEFT_OUTER


def test_rows_with_too_many_columns_are_refused():
    wide = {"k": "bigint", "lt": "timestamp"} | {f"c{n}": "decimal(38,0)" for n in range(70)}
    with pytest.raises(AnalysisError, match="select what you need"):
        planned(joined(left=wide))


def test_as_many_columns_as_are_allowed():
    with pytest.raises(AnalysisError, match="at most") as refused:
        planned(joined(left={"k": "bigint", "lt": "timestamp"} | {f"c{n}": "double" for n in range(70)}))
    text = str(refused.value)
    columns, most = int(text.split("a row has ")[1].split()[0]), int(text.split("at most ")[1].split()[0])
    fitting = {"k": "bigint", "lt": "timestamp"} | {f"c{n}": "decimal(38,0)" for n in range(70 - (columns - most))}
    assert len(planned(joined(left=fitting, how="left")).operator.kept_layout().accumulators) > 50
